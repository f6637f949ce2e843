"""SSD's data tools: what convert_annoset writes is what its readers, ours and protobuf's, find there."""

import json

import cv2
import lmdb
import numpy as np
import pytest

from scaffe.cli.commands.convert_images import convert_annoset, create_label_map, get_image_size
from scaffe.data.convert.annotations import Box, group
from scaffe.data.records.decode import Colour
from scaffe.data.sources.annotated import AnnotatedSource
from scaffe.errors import DataError, UsageError, UserError
from scaffe.proto import caffe_pb2
from scaffe.proto.text import read_message

OBJECT = "<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>" \
         "<ymax>{}</ymax></bndbox></object>"
MAP = 'item { name: "cat" label: 1 display_name: "a cat" } item { name: "dog" label: 2 }'


@pytest.fixture
def folder(tmp_path):
    """Two images of 20 x 40: one with two cats and a dog, in three formats; one without annotations."""
    for name in ("a.png", "b.jpg"):
        cv2.imwrite(str(tmp_path / name), np.random.default_rng(len(name)).integers(0, 256, (20, 40, 3), np.uint8))
    things = [("cat", 1, 4, 5, 20, 10), ("dog", 0, 0, 0, 40, 20), ("cat", 0, 8, 10, 12.7, 15)]
    (tmp_path / "a.xml").write_text("<annotation><size><width>40</width><height>20</height></size>"
                                    + "".join(OBJECT.format(*thing) for thing in things) + "</annotation>")
    (tmp_path / "a.json").write_text(json.dumps({"image": {"height": 20, "width": 40}, "annotation": [
        {"category_id": name, "iscrowd": hard, "bbox": [x0, y0, int(x1) - x0, y1 - y0]}
        for name, hard, x0, y0, x1, y1 in things]}))
    (tmp_path / "a.txt").write_text("1 4 5 20 10\n2 0 0 40 20\n1 8 10 12 15\n")
    (tmp_path / "map.prototxt").write_text(MAP)
    return tmp_path


def convert(folder, kind="xml", *flags, name="db"):
    """Run the tool on the two images. Gives the records through lmdb and protobuf."""
    (folder / "list.txt").write_text(f"a.png a.{kind}\nb.jpg b.{kind}\n")
    arguments = ["--anno_type=detection", f"--label_type={kind}", f"--label_map_file={folder / 'map.prototxt'}",
                 "--check_label=True", *flags, f"{folder}/", str(folder / "list.txt"), str(folder / name)]
    assert convert_annoset(arguments) == 0
    with lmdb.open(str(folder / name), readonly=True, lock=False) as env, env.begin() as transaction:
        return [(key, caffe_pb2.AnnotatedDatum.FromString(value)) for key, value in transaction.cursor()]


@pytest.mark.parametrize("kind", ["xml", "json", "txt"])
def test_annotations_are_grouped_by_class_in_fractions(folder, kind):
    (key, first), (_, second) = convert(folder, kind)
    assert key == b"00000000_a.png"
    assert first.type == first.BBOX
    assert (first.datum.height, first.datum.width, first.datum.channels, first.datum.label) == (20, 40, 3, -1)
    assert [group.group_label for group in first.annotation_group] == [1, 2]
    cats, dogs = (group.annotation for group in first.annotation_group)
    assert [cat.instance_id for cat in cats] == [0, 1]
    box = cats[0].bbox
    assert (box.xmin, box.ymin, box.xmax, box.ymax) == pytest.approx((0.1, 0.25, 0.5, 0.5))
    assert cats[1].bbox.xmax == pytest.approx(12 / 40)
    assert box.difficult == (kind != "txt")
    assert dogs[0].bbox.xmax == 1
    assert not second.annotation_group


@pytest.mark.parametrize(("flags", "shape", "is_file"), [
    ((), (20, 40), False), (("--encoded=True",), (20, 40), True), (("--encode_type=jpg",), (20, 40), True),
    (("--resize_height=8", "--resize_width=12"), (8, 12), False), (("--min_dim=30",), (30, 60), False),
    (("--max_dim=20",), (10, 20), False), (("--min_dim=30", "--max_dim=50"), (25, 50), False),
    (("--gray", "--encoded"), (20, 40), True)])
def test_images(folder, flags, shape, is_file):
    records = convert(folder, "xml", *flags)
    source = AnnotatedSource(str(folder / "db"), Colour.AS_STORED)
    for i, (_, message) in enumerate(records):
        assert (message.datum.height, message.datum.width) == shape
        assert message.datum.encoded == is_file
        assert source.read(i).image.shape[:2] == shape
    found = source.read(0)
    np.testing.assert_allclose(found.objects.boxes[0], [0.1, 0.25, 0.5, 0.5])
    assert found.objects.labels.tolist() == [1, 1, 2]
    if not flags:
        np.testing.assert_array_equal(found.image, cv2.imread(str(folder / "a.png")))
    if flags == ("--encoded=True",):
        assert records[0][1].datum.data == (folder / "a.png").read_bytes()


def test_leveldb_and_shuffled(folder):
    (folder / "list.txt").write_text("a.png a.txt\nb.jpg b.txt\n")
    convert_annoset(["--anno_type=detection", "--label_type=txt", f"--label_map_file={folder / 'map.prototxt'}",
                          "--backend=leveldb", "--shuffle", f"{folder}/", str(folder / "list.txt"),
                          str(folder / "level")])
    source = AnnotatedSource(str(folder / "level"), Colour.BGR)
    assert sorted(len(source.read(i).objects.labels) for i in range(source.n_records)) == [0, 3]


def test_classification(folder):
    (folder / "list.txt").write_text("a.png 7\nb.jpg 3\n")
    convert_annoset([f"{folder}/", str(folder / "list.txt"), str(folder / "db")])
    source = AnnotatedSource(str(folder / "db"), Colour.BGR)
    assert [(source.read(i).label, source.read(i).has_objects) for i in range(2)] == [(7, False), (3, False)]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.xml", "<annotation>" + OBJECT.format("cow", 0, 1, 1, 2, 2) + "</annotation>", "no class 'cow'"),
    ("a.xml", "<annotation", "not XML"),
    ("a.xml", "<annotation>" + OBJECT.format("cat", 0, "x", 1, 2, 2) + "</annotation>", "number of pixels, found 'x'"),
    ("a.xml", "<annotation><object><name>cat</name></object></annotation>", "no bndbox"),
    ("a.xml", "<annotation><size><width>0</width></size>" + OBJECT.format("cat", 0, 1, 1, 2, 2) + "</annotation>",
     "at least 1 x 1"),
    ("a.json", "{}", "as JSON: KeyError"), ("a.json", "[1", "as JSON"),
    ("a.json", '{"annotation": [{"category_id": 3, "bbox": [1, 1, 2, 2]}]}', "no class '3'"),
    *(("a.xml", f"<?xml version='1.0' encoding='{name}'?><annotation/>".encode(), "a.xml: not XML")
      for name in ("klingon", "utf-32", "rot13", "punycode", "undefined", "iso-2022-kr", "idna", "base64")),
    ("a.xml", b'<?xml version="1.0" encoding="gbk"?><a>\x81</a>', "a.xml: not XML"),
    ("a.xml", "<?xml version='1.0'?><annotation/>".encode("utf-32"), "a.xml: not XML"),
    *(("a.json", f'{{"annotation": [{{"category_id": "cat", "bbox": [1, 1, 2, {wrong}]}}]}}', "a.json: ")
      for wrong in ("1" * 400, "1" * 5000, "Infinity", "NaN", '2], "iscrowd": Infinity, "x": [2', "null")),
    ("a.txt", "4294967296 1 2 3 4", "a label of 32 bits"), ("a.txt", f"{'9' * 5000} 1 2 3 4", "a label of 32 bits"),
    ("a.txt", "1 2 3", "a.txt:1: expected 'label xmin ymin xmax ymax'"), ("a.txt", "1 2 3 4 nan", "finite"),
    ("list.txt", "a.png", "list.txt:1: expected 'image annotations'"), ("list.txt", "", "the list is empty"),
    ("map.prototxt", MAP + MAP, "'cat' stands there twice")])
def test_mistakes_are_one_line(folder, name, content, said):
    kind = name.rpartition(".")[2] if name.startswith("a.") else "xml"
    (folder / "list.txt").write_text(f"a.png a.{kind}\n")
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said) as error:
        convert_annoset(["--anno_type=detection", f"--label_type={kind}", "--check_label",
                              f"--label_map_file={folder / 'map.prototxt'}", f"{folder}/", str(folder / "list.txt"),
                              str(folder / "db")])
    assert "\n" not in str(error.value)


def test_detection_needs_a_label_map():
    with pytest.raises(UsageError, match="label_map_file"):
        convert_annoset(["--anno_type=detection", "a", "b", "c"])


@pytest.mark.parametrize(("lines", "flags", "items"), [
    ("cat\ndog\n", (), [("cat", 0, "cat"), ("dog", 1, "dog")]),
    ("cat\ndog\n", ("--include_background=true",),
     [("none_of_the_above", 0, "background"), ("cat", 1, "cat"), ("dog", 2, "dog")]),
    ("cat 5\ndog 3\n", (), [("cat", 5, "cat"), ("dog", 3, "dog")]),
    ("cat,5,A cat\ndog;3;A dog\n", ("--delimiter=,;",), [("cat", 5, "A cat"), ("dog", 3, "A dog")])])
def test_label_maps(tmp_path, lines, flags, items):
    (tmp_path / "classes.txt").write_text(lines)
    create_label_map([*flags, str(tmp_path / "classes.txt"), str(tmp_path / "map.prototxt")])
    made = read_message(tmp_path / "map.prototxt", caffe_pb2.LabelMap)
    assert [(item.name, item.label, item.display_name) for item in made.item] == items


@pytest.mark.parametrize(("lines", "said"), [("cat 1\ndog\n", ":2: expected 2 field"),
                                             ("cat x\n", "'x' is not a whole"),
                                             ("a 1 b c\n", ":1: expected 3 field")])
def test_wrong_label_maps(tmp_path, lines, said):
    (tmp_path / "classes.txt").write_text(lines)
    with pytest.raises(UserError, match=said):
        create_label_map([str(tmp_path / "classes.txt"), str(tmp_path / "map.prototxt")])


def test_sizes_of_images(folder):
    (folder / "list.txt").write_text("a.png a.xml\nb.jpg b.xml\n")
    (folder / "ids.txt").write_text("b 12\na 11\n")
    get_image_size([f"{folder}/", str(folder / "list.txt"), str(folder / "sizes.txt")])
    assert (folder / "sizes.txt").read_text() == "a 20 40\nb 20 40\n"
    get_image_size([f"--name_id_file={folder / 'ids.txt'}", f"{folder}/", str(folder / "list.txt"),
                         str(folder / "sizes.txt")])
    assert (folder / "sizes.txt").read_text() == "11 20 40\n12 20 40\n"


@pytest.mark.parametrize("encoding", ["gbk", "GB2312", "gb18030", "big5", "Shift_JIS", "euc-jp", "euc-kr", "utf-7",
                                      "utf-16", "iso-8859-1", "cp1252"])
def test_xml_of_any_usual_encoding_is_read(folder, encoding):
    """Labelling programs write that of their country; expat alone knows those of one byte a character."""
    name = {"iso-8859-1": "é", "cp1252": "é", "euc-kr": "고양이"}.get(encoding, "犬")
    (folder / "map.prototxt").write_text(f'item {{ name: "{name}" label: 5 }}')
    (folder / "a.xml").write_bytes((f'<?xml version="1.0" encoding="{encoding}"?><annotation>'
                                    + OBJECT.format(name, 0, 4, 5, 20, 10) + "</annotation>").encode(encoding))
    (_, first), _ = convert(folder)
    assert [group.group_label for group in first.annotation_group] == [5]


def test_each_box_is_looked_at_once():
    """With 100,000 labels in a file, each of them looked at all boxes: half an hour."""
    boxes = [Box(label % 5_000, (label, 0.0, 1.0, 1.0)) for label in range(10_000)]
    groups = list(group(boxes))
    assert [label for label, _ in groups] == list(range(5_000))
    assert [box.corners[0] for box in groups[7][1]] == [7, 5_007]
