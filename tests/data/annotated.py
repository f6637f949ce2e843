"""Small databases of AnnotatedDatum records for tests, written with the lmdb and protobuf libraries alone."""

import cv2
import numpy as np

from scaffe.proto import caffe_pb2
from tests.data.databases import unlike_images, write


def record(image, rows, encoding=".png", typed=True):
    """An AnnotatedDatum of a uint8 image (height, width, channels) and rows (label, instance, box, difficult)."""
    message = caffe_pb2.AnnotatedDatum()
    message.datum.height, message.datum.width, message.datum.channels = image.shape
    if encoding:
        message.datum.data, message.datum.encoded = cv2.imencode(encoding, image)[1].tobytes(), True
    else:
        message.datum.data = np.moveaxis(image, -1, 0).tobytes()
    if typed:
        message.type = message.BBOX
    for label in dict.fromkeys(row[0] for row in rows):
        group = message.annotation_group.add(group_label=label)
        for _, instance, *box, difficult in (row for row in rows if row[0] == label):
            one = group.annotation.add(instance_id=instance)
            one.bbox.xmin, one.bbox.ymin, one.bbox.xmax, one.bbox.ymax = box
            one.bbox.difficult = bool(difficult)
    return message.SerializeToString()


def scenes(n, shape=(20, 30, 3), seed=0):
    """Images, and 0 to 2 objects in each: rows (label, instance, xmin, ymin, xmax, ymax, difficult)."""
    rng = np.random.default_rng(seed)
    images = unlike_images(n, shape, seed)
    rows = []
    for i in range(n):
        corners = rng.uniform(0, 0.5, (i % 3, 2))
        extents = rng.uniform(0.2, 0.5, (i % 3, 2))
        rows.append([(1 + k, k, *corners[k].tolist(), *(corners[k] + extents[k]).tolist(), k == 1)
                     for k in range(i % 3)])
    return images, rows


def database(folder, n=11, **options):
    """An LMDB of scenes."""
    images, rows = scenes(n)
    write(folder, [(b"%08d_x" % i, record(images[i], rows[i], **options)) for i in range(n)])
    return folder, images, rows
