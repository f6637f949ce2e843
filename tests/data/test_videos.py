"""VideoData (C3D): which clips, and how each is read and transformed."""

from itertools import count

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import TEST, TRAIN, ReaderOptions, Share, open_layer_feed
from scaffe.errors import DataError
from scaffe.proto import caffe_pb2
from tests.data.databases import unlike_images

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
HEIGHT, WIDTH, FRAMES = 8, 10, (9, 6)  # frames of each video


@pytest.fixture
def folder(tmp_path):
    """Two videos as folders of frames and as files, and what their frames look like once decoded."""
    decoded = []
    for i, n in enumerate(FRAMES):
        (tmp_path / f"v{i}").mkdir()
        writer = cv2.VideoWriter(str(tmp_path / f"v{i}.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (WIDTH, HEIGHT))
        for k in range(n + 1):
            image = unlike_images(1, (HEIGHT, WIDTH, 3), seed=10 * i + k)[0]
            cv2.imwrite(str(tmp_path / f"v{i}" / f"{k:06d}.jpg"), image)
            if k:
                writer.write(image)
        writer.release()
        decoded.append(np.stack([cv2.imread(str(tmp_path / f"v{i}" / f"{k:06d}.jpg")) for k in range(n + 1)]))
    return tmp_path, decoded


def video(folder, lines, options, transform="", n_tops=2):
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    return text_format.Parse(f'''type: "VideoData" {"top: 't' " * n_tops} transform_param {{ {transform} }}
        video_data_param {{ source: "{folder}/list" root_folder: "{folder}/" {options} }}''',
                             caffe_pb2.LayerParameter())


def batches(param, n_batches, phase=TRAIN, share=None, options=ReaderOptions(2)):  # noqa: B008
    feed = open_layer_feed(param, phase, share or Share(), count(7).__next__, options)
    taken = [[a.copy() for a in feed.next()] for _ in range(n_batches)]
    assert feed.shapes[0][:3] == (taken[0][0].shape[0], 3, taken[0][0].shape[1])
    feed.close()
    return taken


def raw(seed=7):
    return (int(x) for x in np.random.RandomState(seed).randint(0, 1 << 32, 1000, np.uint64))


def test_clips_of_frames(folder):
    path, decoded = folder
    param = video(path, ["v0 1 4", "v1 0 9", "v0 2 5"], "use_image: true new_length: 3 sampling_rate: 2 batch_size: 2",
                  "mean_value: 1 mean_value: 2 mean_value: 3 scale: 0.5")
    (clips, labels), (more, _) = batches(param, 2, TEST)
    assert clips.shape == (2, 3, HEIGHT, WIDTH, 3) and labels.tolist() == [4, 9]
    with_mean = [(d.astype(np.float32) - np.float32([1, 2, 3])) * 0.5 for d in decoded]
    np.testing.assert_array_equal(clips[0], with_mean[0][[1, 3, 5]])
    np.testing.assert_array_equal(clips[1], with_mean[1][[0, 2, 4]])
    np.testing.assert_array_equal(more[0], with_mean[0][[2, 4, 6]])


def test_a_random_number_of_lines_is_left_out_at_the_start(folder):
    path, _ = folder
    param = video(path, ["v0 1 4", "v1 0 9", "v0 2 5"], "use_image: true new_length: 3 rand_skip: 3")
    labels = [int(label) for _, (label,) in batches(param, 3, TEST)]
    assert labels == [9, 5, 4]  # the first draw is 7: one is left out


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_clips_are_mirrored_and_cropped_alike_in_all_frames(folder, phase):
    path, decoded = folder
    numbers = raw()
    param = video(path, ["v0 1 4", "v1 2 9"], "use_image: true new_length: 4", "mirror: true crop_size: 5")
    for i, (clips, _) in enumerate(batches(param, 6, phase)):
        mirrored = next(numbers) % 2
        top, left = (next(numbers) % 4, next(numbers) % 6) if phase == TRAIN else (1, 2)
        expected = decoded[i % 2][1 + i % 2:5 + i % 2, top:top + 5, left:left + 5]
        np.testing.assert_array_equal(clips[0], expected[:, :, ::-1] if mirrored else expected)


def test_the_mean_of_clips_is_cropped_with_them(folder):
    path, decoded = folder
    mean = np.random.default_rng(1).random((3, 4, HEIGHT, WIDTH), np.float32)
    blob = caffe_pb2.BlobProto(data=mean.ravel().tolist())
    blob.shape.dim.extend([1, *mean.shape])
    (path / "mean").write_bytes(blob.SerializeToString())
    param = video(path, ["v0 1 4"], "use_image: true new_length: 4", f'crop_size: 6 mean_file: "{path}/mean"')
    (clips, _), = batches(param, 1, TEST)
    expected = decoded[0][1:5].astype(np.float32) - np.moveaxis(mean, 0, -1)
    np.testing.assert_array_equal(clips[0], expected[:, 1:7, 2:8])


def test_clips_at_random_places_of_folders_of_frames(folder):
    path, decoded = folder
    numbers = raw()
    param = video(path, [f"v0 {FRAMES[0]} 4", f"v1 {FRAMES[1]} 9"], "use_image: true new_length: 3 "
                  "use_temporal_jitter: true use_sampling_rate_jitter: true max_sampling_rate: 2")
    for i, (clips, _) in enumerate(batches(param, 8)):
        rate = next(numbers) % 2 + 1
        start = next(numbers) % (FRAMES[i % 2] - 3 * rate + 1) + 1
        np.testing.assert_array_equal(clips[0], decoded[i % 2][start:start + 3 * rate:rate])
    (tested, _), = batches(param, 1, TEST)
    assert any(np.array_equal(tested[0], decoded[0][0:3 * rate:rate]) for rate in (1, 2))


def frames_of(path):
    video_file, frames = cv2.VideoCapture(str(path)), []
    while (read := video_file.read())[0]:
        frames.append(read[1])
    return np.stack(frames)


def test_clips_of_video_files(folder):
    path, _ = folder
    frames = frames_of(path / "v0.avi")
    assert len(frames) == FRAMES[0]
    param = video(path, ["v0.avi 2 4"], "new_length: 3 sampling_rate: 2")
    (clips, labels), = batches(param, 1)
    np.testing.assert_array_equal(clips[0], frames[2:8:2])
    numbers = raw()
    param = video(path, ["v0.avi 4", "v1.avi 5"], "new_length: 4 use_temporal_jitter: true")
    for i, (clips, labels) in enumerate(batches(param, 6, TEST)):
        start = next(numbers) % (FRAMES[i % 2] - 4 + 1)
        np.testing.assert_array_equal(clips[0], frames_of(path / f"v{i % 2}.avi")[start:start + 4])
        assert labels.tolist() == [4 + i % 2]


def test_frames_are_resized_and_labels_may_be_several(folder):
    path, decoded = folder
    param = video(path, ["v0 1 0,3", "v1 1 2"], "use_image: true new_length: 2 new_height: 4 new_width: 6 "
                  "batch_size: 2 use_multiple_label: true num_of_labels: 4")
    (clips, labels), = batches(param, 1)
    assert labels.tolist() == [[1, 0, 0, 1], [0, 0, 1, 0]]
    np.testing.assert_array_equal(clips[1, 0], cv2.resize(decoded[1][1], (6, 4)))


@pytest.mark.parametrize("n_tops", [1, 2])
def test_ranks_share_a_batch_out(folder, n_tops):
    param = video(folder[0], ["v0 1 0", "v1 1 1", "v0 3 2"],
                  "use_image: true new_length: 2 batch_size: 4 shuffle: true", "crop_size: 3 mirror: true", n_tops)
    alone = batches(param, 3)
    for rank in range(3):
        for whole, part in zip(alone, batches(param, 3, share=Share(rank, 3)), strict=True):
            assert len(whole) == len(part) == n_tops
            for a, b in zip(whole, part, strict=True):
                np.testing.assert_array_equal(a[rank::3], b)


@pytest.mark.parametrize(("lines", "options", "transform", "said"), [
    ([], "new_length: 2", "", "empty"), (["v0 1"], "new_length: 2", "", "list:1: expected 'video start label'"),
    (["v0 1 x"], "new_length: 2", "", "whole numbers"), (["v0 -1 2"], "new_length: 2", "", "at least 0"),
    (["v0 1 2"], "", "", "new_length"), (["v0 1 2"], "new_length: 2 show_data: true", "", "show_data"),
    (["v0 1 2"], "new_length: 2 use_multiple_label: true", "", "num_of_labels"),
    (["v0 1 2"], "new_length: 2 use_multiple_label: true num_of_labels: 2", "", "num_of_labels 2"),
    (["v0 8 2"], "new_length: 4 use_image: true", "", "000010.jpg"), (["v0 1 2"], "new_length: 2", "", "not a video"),
    (["v1.avi 4 2"], "new_length: 4", "", "has 2 frames"), (["v9.avi 2"], "new_length: 2 use_temporal_jitter: true", "",
                                                            "not a video"),
    (["v0 4 2"], "new_length: 5 use_image: true use_temporal_jitter: true", "", "has 4 frames"),
    (["v0 1 2"], "new_length: 2 use_image: true", "crop_size: 9", "crop_size 9"),
    (["v0 1 2"], "new_length: 2 use_image: true", "mean_value: 1 mean_value: 2", "mean_value")])
def test_what_cannot_be(folder, lines, options, transform, said):
    with pytest.raises(DataError, match=said):
        batches(video(folder[0], lines, options, transform), 1)


def test_a_bad_clip_that_is_tolerated_is_replaced_by_the_next(folder):
    path, decoded = folder
    param = video(path, ["v0 1 0", "v7 1 1", "v0 3 2"], "use_image: true new_length: 2 batch_size: 2")
    said = []
    (clips, labels), = batches(param, 1, options=ReaderOptions(1, n_bad_allowed=1, on_bad=said.append))
    assert labels.tolist() == [0, 2] and "v7" in said[0]
    np.testing.assert_array_equal(clips[1], decoded[0][3:5])
