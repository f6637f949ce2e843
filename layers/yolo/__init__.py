"""Layers of MobileNet-YOLO's fork: YOLOv2 and YOLOv3."""
