"""A net with what makes limited memory hard: layers in place, random masks, batch statistics, a skip, a concat, large
parameters."""

from scaffe.memory.plan.plan import Choice
from tests.data.databases import datum, unlike_images, write

CONV = 'convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }'
NET = f"""name: "mixed"
layer {{ name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {{
  shape {{ dim: 4 dim: 3 dim: 16 dim: 16 }} shape {{ dim: 4 }}
  data_filler {{ type: "gaussian" std: 1 }} data_filler {{ type: "constant" value: 2 }} }} }}
layer {{ name: "c1" type: "Convolution" bottom: "x" top: "c1" {CONV} }}
layer {{ name: "r1" type: "ReLU" bottom: "c1" top: "c1" }}
layer {{ name: "n1" type: "LRN" bottom: "c1" top: "n1" lrn_param {{ local_size: 3 }} }}
layer {{ name: "c2" type: "Convolution" bottom: "n1" top: "c2" {CONV} }}
layer {{ name: "b2" type: "BatchNorm" bottom: "c2" top: "c2" }}
layer {{ name: "s2" type: "Scale" bottom: "c2" top: "c2" scale_param {{ bias_term: true }} }}
layer {{ name: "r2" type: "ReLU" bottom: "c2" top: "c2" }}
layer {{ name: "d2" type: "Dropout" bottom: "c2" top: "d2" }}
layer {{ name: "sum" type: "Eltwise" bottom: "d2" bottom: "n1" top: "sum" }}
layer {{ name: "rs" type: "ReLU" bottom: "sum" top: "rs" }}
layer {{ name: "c3" type: "Convolution" bottom: "rs" top: "c3" {CONV} }}
layer {{ name: "p3" type: "Pooling" bottom: "c3" top: "p3" pooling_param {{ kernel_size: 3 stride: 1 pad: 1 }} }}
layer {{ name: "q3" type: "Pooling" bottom: "rs" top: "q3"
  pooling_param {{ pool: STOCHASTIC kernel_size: 1 stride: 1 }} }}
layer {{ name: "cat" type: "Concat" bottom: "p3" bottom: "q3" top: "cat" }}
layer {{ name: "g" type: "Sigmoid" bottom: "cat" top: "g" }}
layer {{ name: "f" type: "Flatten" bottom: "g" top: "f" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "f" top: "ip"
  inner_product_param {{ num_output: 20 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "rip" type: "ReLU" bottom: "ip" top: "ip" }}
layer {{ name: "dip" type: "Dropout" bottom: "ip" top: "ip" }}
layer {{ name: "mid" type: "InnerProduct" bottom: "ip" top: "mid"
  inner_product_param {{ num_output: 4000 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "rmid" type: "ReLU" bottom: "mid" top: "mid" }}
layer {{ name: "out" type: "InnerProduct" bottom: "mid" top: "out"
  inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "out" bottom: "label" top: "loss" }}
"""


def from_database(folder):
    """The same net, whose images come from a new LMDB database in the folder, cropped and mirrored at random."""
    images = unlike_images(20, (3, 19, 21))
    write(folder / "images", [(b"%08d" % i, datum(image, i % 5)) for i, image in enumerate(images)])
    return f"""layer {{ name: "in" type: "Data" top: "x" top: "label" data_param {{ source: "{folder}/images"
      backend: LMDB batch_size: 4 }} transform_param {{ crop_size: 16 mirror: true scale: 0.02 mean_value: 120 }} }}
      """ + NET[NET.index('layer { name: "c1"'):]


def moves(name, tier):
    """Whether a plan moves the array of this name."""
    choices = zip(tier.iteration.tensors, tier.plan.choices, strict=True)
    return any(part.name == name and choice is Choice.MOVE for part, choice in choices)


def uneven():
    """A net whose parameters take far more than all else, each layer's of another length. A layer of the test net's has
    the weights of one of them."""
    text = """layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
      shape { dim: 3 dim: 201 } shape { dim: 3 }
      data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 2 } } }"""
    bottom, fill = "x", 'weight_filler { type: "xavier" }'
    for n_outputs in (600, 701, 503, 641, 650, 599, 7):
        top = f"y{n_outputs}"
        text += f"""layer {{ name: "{top}" type: "InnerProduct" bottom: "{bottom}" top: "{top}"
          param {{ name: "w{n_outputs}" }} inner_product_param {{ num_output: {n_outputs} {fill} }} }}"""
        bottom = top
    text += """layer { name: "again" type: "InnerProduct" bottom: "y600" top: "again" param { name: "w701" }
      include { phase: TEST } inner_product_param { num_output: 701 bias_term: false } }"""
    return text + f"""layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "loss" }}"""
