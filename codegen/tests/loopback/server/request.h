// What generated server code needs, for a server in the client's own process.
#pragma once

#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cuda/types.h"
#include "wire/fields.h"

namespace flyt::driver {
struct Table;
}  // namespace flyt::driver

namespace flyt::server {

struct Answer {
  bool given = false;
  bool malformed = false;
  CUresult result = CUDA_SUCCESS;
  std::vector<std::byte> fields;
};

class Request {
 public:
  Request(Bytes payload, Answer& answer) : payload_(payload), answer_(&answer) {}

  template <class Command>
  bool decode(Command& command) {
    answer_->malformed = !wire::decode(payload_, command);
    return !answer_->malformed;
  }
  // The client's things are numbers; the driver's are those plus one hundred.
  bool resolve(Thing& thing) const;
  bool take(Thing& thing);
  bool adopt(Thing client, Thing native);
  const driver::Table& driver() const;

  void reply(CUresult result) {
    answer_->given = true;
    answer_->result = result;
  }
  template <class Fields>
  void reply(CUresult result, const Fields& fields) {
    reply(result);
    answer_->fields.resize(wire::encoded_size(fields));
    Writer writer(answer_->fields);
    wire::encode(writer, fields);
  }

 private:
  Bytes payload_;
  Answer* answer_;
};

}  // namespace flyt::server
