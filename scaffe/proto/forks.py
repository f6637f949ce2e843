"""The well-known forks of Caffe and the layer types that each adds: for error messages and docs/layers.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fork:
    """A fork of Caffe.

    Attributes:
        nets: the nets for which it is known.
        repositories: owner/name on GitHub.
        types: the layer types that its nets use and BVLC Caffe 1.0 lacks.
        fields: names in its LayerParameter or SolverParameter that BVLC's lack.
    """

    nets: str
    repositories: tuple[str, ...]
    types: tuple[str, ...]
    fields: tuple[str, ...] = ()


FORKS = (
    Fork("SSD", ("weiliu89/caffe (ssd)", "chuanqi305/ssd"),
         ("AnnotatedData", "DetectionEvaluate", "DetectionOutput", "MultiBoxLoss", "Normalize", "Permute", "PriorBox",
          "SmoothL1Loss"),
         ("annotated_data_param", "detection_evaluate_param", "detection_output_param", "multibox_loss_param",
          "prior_box_param")),
    Fork("Fast R-CNN and Faster R-CNN", ("rbgirshick/caffe-fast-rcnn", "rbgirshick/py-faster-rcnn"),
         ("ROIPooling", "SmoothL1Loss")),
    Fork("PVANet", ("sanghoon/caffe (dev_pvanet)", "sanghoon/pva-faster-rcnn"),
         ("ROIPooling", "SmoothL1Loss", "Proposal")),
    Fork("R-FCN", ("daijifeng001/caffe-rfcn", "YuwenXiong/py-R-FCN", "Orpine/py-R-FCN", "intel/caffe"),
         ("ROIPooling", "PSROIPooling", "BoxAnnotatorOHEM", "SmoothL1Loss", "SmoothL1LossOHEM", "SoftmaxWithLossOHEM")),
    Fork("Cascade R-CNN and Mask R-CNN", ("zhaoweicai/cascade-rcnn", "jasjeetIM/Mask-RCNN"),
         ("ROIAlign", "PSROIAlign", "DecodeBBox", "BoxGroupOutput", "DetectionData", "EvalData", "BboxAccuracy",
          "DetectionGroupAccuracy", "DetectionGroupLoss", "FrcnnOutput", "HardMining", "ProposalTarget", "ScaleRoute"),
         ("decode_bbox_param", "box_group_output_param", "detection_data_param", "psroi_align_param",
          "detection_accuracy_param", "proposal_target_param", "bbox_reg_param", "frcnn_output_param",
          "scale_route_param", "eval_data_param", "detection_group_loss_param", "detection_group_accuracy_param")),
    Fork("Deformable ConvNets", ("unsky/Deformable-ConvNets-caffe",),
         ("DeformableConvolution", "DeformablePSROIPooling"),
         ("deformable_convolution_param", "deformable_psroi_pooling_param")),
    Fork("SegNet and ENet", ("alexgkendall/caffe-segnet", "TimoSaemann/ENet"),
         ("BN", "Upsample", "DenseImageData"), ("bn_param", "dense_image_data_param")),
    Fork("PSPNet and ICNet", ("hszhao/PSPNet", "hszhao/ICNet"), ("BN", "Interp", "SegAccuracy", "ImageSegData"),
         ("seg_accuracy_param",)),
    Fork("DeepLab", ("xmyqsh/deeplab-v2", "lzx1413/CAFFE_SSD"),
         ("ImageSegData", "Interp", "SegAccuracy", "DenseCRF", "MatRead", "MatWrite", "UniqueLabel",
          "AdaptiveBiasChannel", "BilateralInterp"),
         ("densecrf_param", "mat_read_param", "mat_write_param", "unique_label_param", "adaptive_bias_channel_param")),
    Fork("C3D", ("facebook/C3D", "chuckcho/video-caffe"),
         ("VideoData", "Convolution3D", "Deconvolution3D", "Pooling3D", "NdConvolution", "NdPooling",
          "VideoSegmentationData", "VideoWithVoxelTruthData"),
         ("video_data_param", "convolution3d_param", "pooling3d_param", "volume_data_param")),
    Fork("YOLO", ("eric612/MobileNet-YOLO", "eric612/Caffe-YOLOv3-Windows", "xingwangsfu/caffe-yolo"),
         ("Reorg", "RegionLoss", "YoloDetectionOutput", "Yolov3", "Yolov3DetectionOutput", "EvalDetection",
          "BoxData", "DetectionLoss", "LaneData", "YoloSeg", "AssistedExcitation", "SegmentationEvaluate"),
         ("reorg_param", "region_loss_param", "yolo_detection_output_param", "yolov3_param",
          "yolov3_detection_output_param", "eval_detection_param", "detection_loss_param", "box_data_param")),
    Fork("caffe-lstm, CTPN and caffe_ocr", ("junhyukoh/caffe-lstm", "tianzhi0549/CTPN", "senlinuc/caffe_ocr"),
         ("Lstm", "Reverse", "Transpose", "WarpCTCLoss", "CtcLoss", "CTCGreedyDecoder", "DenseBlock"),
         ("lstm_param", "reverse_param", "transpose_param", "warp_ctc_loss_param", "ctc_loss_param",
          "ctc_decoder_param", "denseblock_param")),
    Fork("caffe-face", ("ydwen/caffe-face", "happynear/caffe-windows"),
         ("CenterLoss", "Insanity", "Flip", "LabelSpecificAdd", "LabelSpecificMargin", "ChannelScale", "TripletLoss",
          "GeneralTriplet", "InnerDistance", "MultiLabelImageData", "Hotspot", "SubRegion"),
         ("center_loss_param", "insanity_param", "flip_param", "label_specific_add_param",
          "label_specific_margin_param", "channel_scale_param", "triplet_loss_param", "clamp_weights_lower",
          "clamp_weights_upper", "clip_weights")),
    Fork("SphereFace", ("wy1iu/sphereface",), ("MarginInnerProduct",), ("margin_inner_product_param",)),
    Fork("Multi-task network cascades", ("daijifeng001/MNC",), ("MaskPooling", "ROIWarping", "MaskResize"),
         ("mask_pooling_param", "roi_warping_param", "mask_resize_param")),
    Fork("DetectNet and half precision", ("NVIDIA/caffe",), ("DetectNetTransformation", "TRT"),
         ("scale_bias", "forward_type", "backward_type", "default_forward_type", "default_backward_type",
          "default_forward_math", "default_backward_math", "momentum_policy", "max_momentum", "momentum_power", "larc",
          "larc_policy", "larc_eta", "larc_turbo", "weight_decay_policy", "weight_decay_power", "max_weight_decay",
          "solver_data_type", "store_blobs_in_old_format", "test_and_snapshot_last_epochs", "global_grad_scale",
          "reduce_buckets")),
    Fork("Intel's CPUs", ("intel/caffe",), (),
         ("disabled_update", "local_lr_auto", "local_gw_ratio", "test_offset")),
    Fork("DeepDetect", ("jolibrain/caffe",), ("LabelsequenceAccuracy", "SparseData", "SparseInnerProduct"),
         ("labelsequence_accuracy_param", "lr_dropout", "decoupled_wd_t0", "decoupled_wd_mult", "amsgrad", "rectified",
          "gc", "adabelief", "lookahead", "lookahead_steps", "lookahead_alpha")),
    Fork("temporal segment networks", ("yjxiong/caffe",), ("Gather", "SegData", "CompactData", "AccuracyTree",
         "TransformSoftmaxLoss"), ("group_id", "richness")),
    Fork("soeaver's models", ("soeaver/caffe-model",), ("SeLu", "SeLuDropout")),
    Fork("LRCN", ("jeffdonahue/caffe (recurrent)", "LisaAnne/lisa-caffe-public"),
         ("LSTM", "RNN", "ContinuationIndicator"), ("continuation_indicator_param", "stepearly")),
    Fork("SENet", ("hujie-frank/SENet",), ("Axpy",)),
    Fork("ShuffleNet and MobileNet",
         ("farmingyard/ShuffleNet", "shicai/MobileNet-Caffe", "yonghenglh6/DepthwiseConvolution"),
         ("ShuffleChannel", "DepthwiseConvolution", "ConvolutionDepthwise", "ReLU6", "BroadcastMul")),
    Fork("FlowNet 2", ("lmb-freiburg/flownet2",),
         ("Correlation", "Correlation1D", "FlowWarp", "Resample", "Downsample", "DataAugmentation",
          "GenerateAugmentationParameters", "FlowAugmentation", "CustomData", "L1Loss", "Mean", "ChannelNorm",
          "BlackAugmentation"),
         ("correlation_param", "resample_param", "augmentation_param", "coeff_schedule_param", "mean_param",
          "l1_loss_param", "writer_param", "reader_param")),
    Fork("OpenPose", ("CMU-Perceptual-Computing-Lab/caffe_train", "CMU-Perceptual-Computing-Lab/openpose"),
         ("CPMData", "ImResize", "Nms"), ("cpm_transform_param", "imresize_param", "nms_param")),
    Fork("CRF-RNN", ("torrvision/crfasrnn",), ("MultiStageMeanfield",), ("multi_stage_meanfield_param",)),
    Fork("OpenVINO's models", ("opencv/open_model_zoo",), ("PriorBoxClustered",)),
    Fork("HED and OSVOS", ("s9xie/hed", "kmaninis/OSVOS-caffe"),
         ("SigmoidCrossEntropyBalanceLoss", "ImageLabelmapData", "AutoCrop"), ("image_labelmap_data_param",)),
    Fork("U-Net", ("naibaf7/caffe", "naibaf7/caffe_neural_models"),
         ("MergeCrop", "MalisLoss", "ConnectedComponent", "Affinity"), ("mergecrop_param", "malis_param")),
    Fork("DeconvNet", ("HyeonwooNoh/caffe", "HyeonwooNoh/DeconvNet"),
         ("Unpooling", "WindowSegData", "EltwiseAccuracy"), ("unpooling_param",)),
    Fork("domain adaptation", ("thuml/transfer-caffe", "ddtm/caffe"), ("MMDLoss", "GradientScaler"),
         ("mmd_param", "gradient_scaler_param")),
    Fork("Ristretto", ("pmgysel/caffe",), ("ConvolutionRistretto", "FcRistretto", "LRNRistretto"),
         ("quantization_param",)),
)


def fork_of_type(layer_type: str) -> str:
    """" (of the fork for ...)" for a layer type that a known fork adds, as Type or as OLD_TYPE, else ""."""
    plain = layer_type.replace("_", "").lower()
    return next((_said(fork) for fork in FORKS if plain in map(str.lower, fork.types)), "")


def fork_of_field(name: str) -> str:
    """The same for the name of a field in LayerParameter or SolverParameter."""
    return next((_said(fork) for fork in FORKS if name in fork.fields), "")


def _said(fork: Fork) -> str:
    return f" (of the fork for {fork.nets}, {fork.repositories[0]})"
