// native/narrow/recurrent.h: an LSTM whose products are of bytes.
#pragma once

#include <string>
#include <vector>

#include "eigen/recurrent.h"

namespace vtensor::narrow {

// All f32 if nothing else is said. Arguments: x (T N F); w (dir gate unit F) and r (dir gate unit
// state), s8, in panels: dir gate unit/16 F/4 unit%16 F%4, and state for F; their scales and zero
// points (dir gate unit), f32 f32 s8 s8; then the optional inputs `given`, y and the last states as
// in eigen/recurrent.h; scratch. `instructions` names a kind of sums.h.
eigen::Step *dynamic_lstm(const eigen::Network &network, const std::vector<std::string> &given,
                          eigen::Index length_bytes, const std::string &instructions);

}  // namespace vtensor::narrow
