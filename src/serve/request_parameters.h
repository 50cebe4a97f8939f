// Reads the parameters of a request's body one by one, checks them, and refuses those that have not been read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "core/json.h"

namespace hone {

// Collects, while it exists, the parameters that this thread reads from bodies: how the description of an endpoint
// comes from the code that reads its requests. Parameters of objects in a body are left out.
class ParameterRecorder {
 public:
  ParameterRecorder();
  ParameterRecorder(const ParameterRecorder&) = delete;
  ParameterRecorder& operator=(const ParameterRecorder&) = delete;
  ~ParameterRecorder();

  // The schemas by name, in the order in which they were read.
  [[nodiscard]] const Json& schemas() const { return *schemas_; }

 private:
  friend class RequestParameters;
  std::unique_ptr<Json> schemas_;
  ParameterRecorder* outer_;
};

class RequestParameters {
 public:
  // `body` must outlive the object. `prefix` comes before the names of parameters in messages.
  explicit RequestParameters(const Json& body, std::string prefix = {}) : body_(body), prefix_(std::move(prefix)) {}

  // Returns the value of a key; null if it is absent.
  const Json& value(const char* key);

  // The following read into `result` and return true if the key is present and not null. They throw RequestError if
  // the type is wrong or the value is out of range.
  bool boolean(const char* key, bool& result);
  bool integer(const char* key, std::int64_t& result, std::int64_t least, std::int64_t most);
  bool number(const char* key, double& result, double least, double most);
  bool text(const char* key, std::string& result);

  // Accepts a key only if it is absent, null or `neutral`, the value that changes nothing.
  void only(const char* key, const Json& neutral);
  // Accepts a key with any value, because it never changes a result.
  void ignore(const char* key) { (void)value(key); }
  // Throws RequestError if the body has a key that was not read.
  void refuse_others() const;

  // Returns the name of a key as messages show it.
  [[nodiscard]] std::string name_of(std::string_view key) const { return prefix_ + std::string(key); }
  static std::int64_t checked_integer(const Json& found, const std::string& param, std::int64_t least,
                                      std::int64_t most);
  [[noreturn]] static void refuse(const std::string& param, const Json& found, std::string_view expected);

 private:
  // Gives a parameter to the recorder, if there is one.
  void record(const char* key, const Json& schema) const;

  const Json& body_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

// Parses a body, which must be a JSON object. Throws RequestError.
[[nodiscard]] Json parse_body(std::string_view body);

}  // namespace hone
