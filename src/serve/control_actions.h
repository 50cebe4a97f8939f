// Helpers of endpoints that act on the engine between two of its steps.
#pragma once

#include <functional>
#include <memory>

#include "core/json.h"
#include "http/message.h"
#include "serve/engine_loop.h"
#include "serve/request_parameters.h"
#include "serve/service.h"

namespace hone {

// Returns the parameters of a control request: those of its JSON body, if it has one, and those of its query, whose
// repeated keys become arrays.
[[nodiscard]] Json control_parameters(const ServerRequest& request);

// Reads the parameter mode: abort, wait or keep.
[[nodiscard]] UnderWay under_way_of(RequestParameters& parameters, UnderWay usual);

// Runs an action on the engine's thread and answers with `answer` once it is over; an empty answer has no body.
void act(const Service& service, const std::shared_ptr<ServerReply>& reply, UnderWay under_way,
         std::function<void(ResidentModel&)> action, std::function<Json()> answer);
// The same for an action that may change the weights; the answer states their version after it.
void act_versioned(const Service& service, const std::shared_ptr<ServerReply>& reply, UnderWay under_way,
                   std::function<void(ResidentModel&)> action, std::function<Json(std::int64_t version)> answer);
// Answers with the error of an action; without one, as act() does.
void answer_action(ServerReply& reply, const std::exception* error, const std::function<Json()>& answer);

// Returns a function that returns this answer.
[[nodiscard]] std::function<Json()> fixed(Json answer);

}  // namespace hone
