// Hmac: proof that a text comes from somebody with the key (FIPS 198-1 over SHA-256).
#pragma once

#include "base/bytes.h"
#include "base/sha256.h"

namespace flyt {

Digest hmac_sha256(Bytes key, Bytes message);

// Takes as long whatever the bytes are; only their number may show.
bool equal_in_constant_time(Bytes a, Bytes b);

}  // namespace flyt
