// Brings the messages of a chat request into the form that chat templates read.
#pragma once

#include "core/json.h"

namespace hone {

// Checks an array of messages and returns it with text parts joined by line breaks and with the arguments of tool calls
// as objects. Throws RequestError that names the message and the key.
[[nodiscard]] Json template_messages(const Json& messages);

}  // namespace hone
