"""What PyTorch builds on process groups trains as one process does: DDP, our hook, FSDP, ZeroRedundancyOptimizer."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

N_PER_RANK, N_STEPS = 3, 4


def make_net(has_batch_norm=False):
    """The same on every rank; odd widths, some parameters of one element."""
    generator = torch.Generator().manual_seed(5)
    norm = [nn.BatchNorm1d(33)] if has_batch_norm else []
    net = nn.Sequential(nn.Linear(7, 33), *norm, nn.Tanh(), nn.Linear(33, 5), nn.Tanh(), nn.Linear(5, 1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return net


def batch(step, n_ranks):
    """The whole batch of all ranks."""
    generator = torch.Generator().manual_seed(100 + step)
    return (torch.randn(n_ranks * N_PER_RANK, 7, generator=generator),
            torch.randn(n_ranks * N_PER_RANK, 1, generator=generator))


def train(net, optimizer, part=slice(None)):
    for step in range(N_STEPS):
        images, targets = batch(step, dist.get_world_size())
        optimizer.zero_grad()
        ((net(images[part]) - targets[part]) ** 2).mean().backward()
        optimizer.step()


@pytest.fixture(scope="module")
def alone():
    """Parameters that one process finds on the whole batch."""
    net = make_net()
    train(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
    return [parameter.detach().clone() for parameter in net.parameters()]


@pytest.fixture
def share():
    """This rank's part of the batch."""
    return slice(dist.get_rank() * N_PER_RANK, (dist.get_rank() + 1) * N_PER_RANK)


def assert_equal(parameters, right, tolerance=1e-5):
    for parameter, wanted in zip(parameters, right, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, rtol=tolerance, atol=tolerance)


def sgd(net):
    return torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)


def test_ddp_over_our_backend(alone, share):
    net = DistributedDataParallel(make_net(), bucket_cap_mb=0.001)
    train(net, sgd(net), share)
    assert_equal(net.module.parameters(), alone)


@pytest.mark.parametrize("as_view", [False, True])
@pytest.mark.parametrize(("wire", "tolerance"), [("", 1e-5), ("bf16", 0.03), ("fp16", 0.005)])
def test_our_hook_beside_gloo(alone, share, gloo, wire, tolerance, as_view):
    import scaffe.torch

    net = DistributedDataParallel(make_net(), process_group=gloo, bucket_cap_mb=0.001, gradient_as_bucket_view=as_view)
    net.register_comm_hook(None, scaffe.torch.ddp_hook(wire=wire))
    train(net, sgd(net), share)
    assert_equal(net.module.parameters(), alone, tolerance)


def test_the_hook_takes_no_unknown_wire():
    import scaffe.torch

    with pytest.raises(scaffe.collectives.CommError, match="a wire is fp16 or bf16, not 'int8'"):
        scaffe.torch.ddp_hook(wire="int8")


def test_ddp_of_bfloat16_and_buffers_is_gloos(share, gloo):
    found = []
    for group in (None, gloo):
        net = DistributedDataParallel(make_net(has_batch_norm=True).to(torch.bfloat16), process_group=group)
        images, targets = (values.to(torch.bfloat16)[share] for values in batch(0, dist.get_world_size()))
        ((net(images) - targets) ** 2).mean().backward()
        found.append([parameter.grad.clone() for parameter in net.parameters()] + list(net.buffers()))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_fully_shard(alone, share):
    net = make_net()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    train(net, sgd(net), share)
    assert_equal([parameter.full_tensor() for parameter in net.parameters()], alone)


def test_fully_sharded_data_parallel(alone, share):
    net = FullyShardedDataParallel(make_net(), device_id=torch.device("cpu"), use_orig_params=False)
    train(net, sgd(net), share)
    with FullyShardedDataParallel.summon_full_params(net):
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])
    right = torch.cat([values.view(-1) for values in alone])
    torch.testing.assert_close(flat[: right.numel()], right, rtol=1e-5, atol=1e-5)


def test_zero_redundancy_optimizer(alone, share):
    net = DistributedDataParallel(make_net())
    train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9), share)
    assert_equal(net.module.parameters(), alone)
