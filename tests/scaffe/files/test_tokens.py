"""The text format as protobuf's C++ parser reads it, where Python's reads otherwise."""

import json
from pathlib import Path

import pytest

from scaffe.proto import caffe_pb2
from scaffe.proto.text import ProtoError, parse_text
from scaffe.proto.tokens import conform

# Random messages, kind and text, and what protoc 7.36 (grpcio-tools 1.85.1) encoded for each; None where it refused it.
PROTOC = json.loads((Path(__file__).parents[2] / "reference" / "protoc_text.json").read_text())

# Each was given to protobuf's own C++ parser: what it takes, and what it refuses.
TAKEN = ["base_lr: - 0.5", "base_lr: -\n  0.5", "base_lr: 1.5F", "base_lr: 2f", "base_lr: .5", "base_lr: 5.",
         "base_lr: 1e+3", "base_lr: -inf", "base_lr: - nan", "max_iter: 0x1F", "max_iter: 017", "max_iter: -  7",
         "base_lr: 1,", "base_lr: 1; max_iter: 2", "stepvalue: [1, 2]", "stepvalue: []", "net: 'a' \"b\"",
         "test_state <>", "test_state { }", "test_state: { level: 1 }", "net: \"\\x41\\101\\n\\\"\"", "net: 'ü'",
         "# é\u00a0 /* no end",
         "debug_info: True", "debug_info: t", "debug_info: 0", "max_iter:1 base_lr:2", "net:'x'max_iter:1",
         "regularization_type: 'L2'base_lr: 1", "base_lr: 1e400", "\vmax_iter: 1\f", "solver_mode: CPU",
         "solver_mode: 1", "solver_mode: 0x1", "debug_info: 0x1", "debug_info: 00", "net: '\\501\\?\\X41'",
         "net: '\\ud83d\\ude00'"]
REFUSED = [("base_lr: +0.5", "'+' is no part"), ("max_iter: +1", "'+' is no part"), ("max_iter: 1_000", "no number"),
           ("base_lr: 1_0.5", "no number"), ("max_iter: 0b11", "no number"), ("max_iter: 0o17", "no number"),
           ("max_iter: 08", "octal"), ("base_lr:\u00a01", "U+00A0"), ("net: \"C:\\data\"", "no escape"),
           ("net: \"C:\\\\data\\x\"", "no escape"), ("net: 'a\nb'", "not closed"), ("net: \"a", "not closed"),
           ("max_iter: 1 // one", "begins with #"), ("max_iter: 10base_lr: 1", "a space"),
           ("base_lr: 1.5.2", "no number"), ("max_iter: 1\u3000", "U+3000"), ("max_iter: 0x", "no number"),
           ("base_lr: inff", "no number"), ("base_lr: 1e", "no number"),
           ("max_iter: 1 \x01", "no part"), ("max_iter = 1", "'=' is no part"), ("base_lr: 2F3", "no number"),
           ("max_iter: 2f", "2f"), ("debug_info: TRUE", "TRUE"), ("max_iter: 1.0", "1.0"), ("net: x", "x"),
           ("max_iter: 1 max_iter: 1", "twice"), ("test_state { } }", "}"), ("max_iter: - - 1", "-"),
           ("solver_mode: 'CPU'", "CPU"), ("solver_mode: 7", "7"), ("debug_info: 2", "2"), ("base_lr: 'x'", "x"),
           ("solver_mode: 4294967296", "out of range"), ("base_lr: 0x1", "0x1"), ("\ufeffmax_iter: 1", "byte-order"),
           ("debug_info: 0x2", "2")]


@pytest.mark.parametrize("text", TAKEN)
def test_what_cpp_takes_is_taken(text):
    parse_text(text, caffe_pb2.SolverParameter)
    assert len(conform(text)) == len(text)
    assert conform(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_cpp_refuses_is_refused(text, said):
    with pytest.raises(ProtoError) as error:
        parse_text(text, caffe_pb2.SolverParameter, "s.prototxt")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("text", "value"), [("- 0.5", -0.5), ("-\n0.5", -0.5), ("1.5F", 1.5), ("- # so\n 2", -2)])
def test_values(text, value):
    assert parse_text(f"base_lr: {text}", caffe_pb2.SolverParameter).base_lr == value


@pytest.mark.parametrize(("text", "value"), [(r"'a\?'", "a?"), (r"'\X41' 'b'", "Ab"), (r"'\501'", "A"),
                                             (r'"\ud83d\ude00!"', "\U0001f600!"), (r"'\303\251'", "é")])
def test_strings(text, value):
    assert parse_text(f"net: {text}", caffe_pb2.SolverParameter).net == value


def test_types_are_those_of_the_message_that_the_field_is_in():
    """``background_label_id`` is unsigned in one message and not in another, also after a list of messages."""
    parse_text("param [{}, {}] detection_output_param { background_label_id: -0 }", caffe_pb2.LayerParameter)
    with pytest.raises(ProtoError, match="'-0' has a sign"):
        parse_text("param [{}, {}] detection_evaluate_param { background_label_id: -0 }", caffe_pb2.LayerParameter)


def test_what_protoc_reads_is_read_and_what_it_refuses_is_refused():
    for kind, text, encoded in PROTOC:
        message = getattr(caffe_pb2, kind)
        if encoded is None:
            with pytest.raises(ProtoError):
                parse_text(text, message)
        else:
            expected = message.FromString(bytes.fromhex(encoded)).SerializeToString(deterministic=True)
            assert parse_text(text, message).SerializeToString(deterministic=True) == expected, text


def test_the_place_of_a_mistake():
    with pytest.raises(ProtoError, match=r"^n\.prototxt:3:10: '\+' is no part of the text format \(in layer 'c'\)$"):
        parse_text('layer {\n name: "c"\n  phase: +1 }', caffe_pb2.NetParameter, "n.prototxt")
