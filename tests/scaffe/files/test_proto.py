"""Caffe's schema and its files' text, with mistakes told in one line."""

import pytest

from scaffe.proto import caffe_pb2
from scaffe.proto.text import ProtoError, parse_binary, parse_text, read_message

# message, field, number, default: facts of Caffe 1.0's published schema
FIELDS = [
    ("NetParameter", "layer", 100, None), ("NetParameter", "layers", 2, None), ("NetParameter", "input_dim", 4, None),
    ("LayerParameter", "blobs", 7, None), ("LayerParameter", "phase", 10, None),
    ("LayerParameter", "convolution_param", 106, None), ("LayerParameter", "batch_norm_param", 139, None),
    ("LayerParameter", "python_param", 130, None), ("LayerParameter", "recurrent_param", 146, None),
    ("BlobProto", "data", 5, None), ("BlobProto", "shape", 7, None), ("BlobProto", "double_data", 8, None),
    ("Datum", "label", 5, None), ("Datum", "encoded", 7, False), ("SolverState", "iter", 1, None),
    ("SolverState", "current_step", 4, 0), ("SolverParameter", "snapshot_format", 37, 1),
    ("SolverParameter", "type", 40, "SGD"), ("SolverParameter", "clip_gradients", 35, -1.0),
    ("SolverParameter", "momentum2", 39, pytest.approx(0.999)), ("LRNParameter", "alpha", 2, 1.0),
    ("PoolingParameter", "round_mode", 13, 0),
    ("BatchNormParameter", "moving_average_fraction", 2, pytest.approx(0.999)),
    ("DropoutParameter", "dropout_ratio", 1, 0.5), ("TransformationParameter", "mean_value", 5, None),
]


@pytest.mark.parametrize(("message", "field", "number", "default"), FIELDS)
def test_fields_have_caffes_numbers_and_defaults(message, field, number, default):
    found = getattr(caffe_pb2, message).DESCRIPTOR.fields_by_name[field]
    assert found.number == number
    if default is not None:
        assert found.default_value == default


def test_wire_form_is_caffes():
    blob = caffe_pb2.BlobProto(data=[1.0])
    blob.shape.dim.extend([1, 1])
    assert blob.SerializeToString() == b"\x2a\x04\x00\x00\x80\x3f\x3a\x04\x0a\x02\x01\x01"


@pytest.mark.parametrize(("text", "said"), [
    ('layer {\n name: "c1"\n convolution_parm { num_output: 2 }\n}',
     "n.prototxt:3:2: LayerParameter has no field 'convolution_parm'; did you mean 'convolution_param'? "
     "(in layer 'c1')"),
    ('layer { name: "p" pooling_param { pool: MIX } }', "'MIX' is no value of PoolMethod; known: MAX, AVE, STOCHASTIC"),
    ('layers { name: "p" type: FLOW_WARP }', "'FLOW_WARP' is no value of LayerType (of the fork for FlowNet 2, "
     "lmb-freiburg/flownet2); upgrade_net_proto_text writes 'layers' as 'layer', whose types are strings (in layer "
     "'p')"),
    ('layers { name: "p" type: BN }', "'BN' is no value of LayerType (of the fork for SegNet and ENet, "),
    ('layer { name: "p" correlation_param { pad: 3 } }', "LayerParameter has no field 'correlation_param' (of the fork "
     "for FlowNet 2, lmb-freiburg/flownet2) (in layer 'p')"),
    ('name: "x"\nlayer { name: "a" ', "n.prototxt:2"),
    ('layer { name: "q" type: "ReLU"\n type: "TanH" }',
     "n.prototxt:2:8: LayerParameter is given 'type' twice (in layer 'q')"),
    ('layer { clip_param { min: 0 } }', "n.prototxt: layer[0].clip_param.max is required"),
    ('layer { name: "q" convolution_param { num_output: -1 } }', "'-1' has a sign"),
])
def test_mistakes_name_line_and_layer(text, said):
    with pytest.raises(ProtoError) as error:
        parse_text(text, caffe_pb2.NetParameter, "n.prototxt")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_and_binary_files_are_told(tmp_path):
    with pytest.raises(ProtoError, match="no such file"):
        read_message(tmp_path / "none.prototxt", caffe_pb2.NetParameter)
    (tmp_path / "c.prototxt").write_bytes(b'# \xc4\xe3\xba\xc3 (a comment in GBK)\nname: "n"')
    assert read_message(tmp_path / "c.prototxt", caffe_pb2.NetParameter).name == "n"
    (tmp_path / "d.prototxt").write_bytes(b'\xef\xbb\xbfname: "n"')
    with pytest.raises(ProtoError, match="d.prototxt:1:1: begins with a byte-order mark"):
        read_message(tmp_path / "d.prototxt", caffe_pb2.NetParameter)
    (tmp_path / "b.prototxt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProtoError, match="not a text file"):
        read_message(tmp_path / "b.prototxt", caffe_pb2.NetParameter)
    raw = caffe_pb2.NetParameter(name="a long enough name").SerializeToString()
    with pytest.raises(ProtoError, match="truncated"):
        parse_binary(raw[:-3], caffe_pb2.NetParameter, "x.caffemodel")


def test_another_caffe_pb2_in_the_process_does_not_clash():
    """The default pool may hold a package caffe of someone else, with other fields."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    other = descriptor_pb2.FileDescriptorProto(name="theirs/caffe.proto", package="caffe")
    other.message_type.add(name="NetParameter").field.add(name="mine", number=1, label=1, type=5)
    descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
    assert "mine" not in caffe_pb2.NetParameter.DESCRIPTOR.fields_by_name
    assert caffe_pb2.NetParameter(name="n").name == "n"


def test_the_compiled_schema_is_the_texts():
    """Field for field, so that no one forgets to compile caffe.proto again."""
    import re
    from pathlib import Path

    import scaffe.proto

    text = (Path(scaffe.proto.__file__).parent / "caffe.proto").read_text()
    written = {(name, int(number)) for name, number in
               re.findall(r"(?:optional|required|repeated) [\w.]+ (\w+) = (\d+)", text)}
    messages = [m.DESCRIPTOR for m in vars(caffe_pb2).values() if isinstance(m, type) and hasattr(m, "DESCRIPTOR")]
    nested = [inner for m in messages for inner in m.nested_types]
    assert {(f.name, f.number) for m in (*messages, *nested) for f in m.fields} == written
    assert {m.name for m in messages} == set(re.findall(r"^message (\w+)", text, re.M))
