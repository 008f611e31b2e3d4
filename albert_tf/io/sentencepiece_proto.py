# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The message of a SentencePiece model file, as far as it is read and written here.

The library's own module of messages cannot be imported beside every protobuf: that of sentencepiece
0.2.3 needs a newer one than TensorFlow 2.15 and Apache Beam allow. Numbers and names of fields are
those of its sentencepiece_model.proto; other fields stay in a message, unread.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_FILE = """
name: "albert_tf/model.proto"
package: "albert_tf"
message_type {
  name: "ModelProto"
  field { number: 1 name: "pieces" label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Piece" }
  field { number: 2 name: "trainer_spec" type: TYPE_MESSAGE type_name: "Trainer" }
  field { number: 3 name: "normalizer_spec" type: TYPE_MESSAGE type_name: "Rules" }
  field { number: 5 name: "denormalizer_spec" type: TYPE_MESSAGE type_name: "Rules" }
}
message_type {
  name: "Piece"
  field { number: 1 name: "piece" type: TYPE_STRING }
  field { number: 2 name: "score" type: TYPE_FLOAT }
  field { number: 3 name: "type" type: TYPE_ENUM type_name: "Type" default_value: "NORMAL" }
  enum_type {
    name: "Type"
    value { number: 1 name: "NORMAL" }
    value { number: 2 name: "UNKNOWN" }
    value { number: 3 name: "CONTROL" }
    value { number: 4 name: "USER_DEFINED" }
    value { number: 5 name: "UNUSED" }
    value { number: 6 name: "BYTE" }
  }
}
message_type {
  name: "Trainer"
  field { number: 3 name: "model_type" type: TYPE_ENUM type_name: "Kind" default_value: "UNIGRAM" }
  field { number: 4 name: "vocab_size" type: TYPE_INT32 }
  field { number: 35 name: "byte_fallback" type: TYPE_BOOL }
  field { number: 40 name: "unk_id" type: TYPE_INT32 }
  field { number: 41 name: "bos_id" type: TYPE_INT32 }
  field { number: 42 name: "eos_id" type: TYPE_INT32 }
  field { number: 43 name: "pad_id" type: TYPE_INT32 }
  field { number: 45 name: "unk_piece" type: TYPE_STRING }
  enum_type {
    name: "Kind"
    value { number: 1 name: "UNIGRAM" }
    value { number: 2 name: "BPE" }
    value { number: 3 name: "WORD" }
    value { number: 4 name: "CHAR" }
  }
}
message_type {
  name: "Rules"
  field { number: 2 name: "precompiled_charsmap" type: TYPE_BYTES }
}
"""

_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))
ModelProto = message_factory.GetMessageClass(_pool.FindMessageTypeByName("albert_tf.ModelProto"))
