#include "serve/control_actions.h"

#include <algorithm>
#include <utility>

#include "core/json_value.h"
#include "core/strings.h"
#include "serve/request_error.h"

namespace hone {
namespace {

// A value of a query as JSON: a number, true, false, or a text.
Json query_value(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  if (!text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos)
    return std::stoll(text);
  return text;
}

}  // namespace

Json control_parameters(const ServerRequest& request) {
  Json all = request.body.empty() ? Json::object() : parse_body(request.body);
  const std::size_t begin = request.target.find('?');
  if (begin == std::string::npos) return all;
  for (const std::string& pair : split(request.target.substr(begin + 1), '&')) {
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string key = pair.substr(0, equals);
    Json value = query_value(pair.substr(std::min(equals + 1, pair.size())));
    if (!all.contains(key)) {
      all[key] = std::move(value);
      continue;
    }
    if (!all[key].is_array()) all[key] = Json::array({all[key]});
    all[key].push_back(std::move(value));
  }
  return all;
}

UnderWay under_way_of(RequestParameters& parameters, UnderWay usual) {
  std::string mode;
  if (!parameters.text("mode", mode)) return usual;
  if (mode == "abort") return UnderWay::kAbort;
  if (mode == "wait") return UnderWay::kWait;
  if (mode == "keep") return UnderWay::kKeep;
  throw RequestError("mode", text_of("is \"", mode, "\""), "expected abort, wait or keep");
}

void answer_action(ServerReply& reply, const std::exception* error, const std::function<Json()>& answer) {
  if (error == nullptr) {
    const Json body = answer();
    return reply.send({.status = 200, .body = body.is_null() ? std::string() : json_text(body)});
  }
  const auto* refusal = dynamic_cast<const RequestError*>(error);
  const int status = refusal != nullptr ? refusal->status() : dynamic_cast<const Error*>(error) != nullptr ? 400 : 500;
  reply.send({.status = status,
              .body = error_body(error->what(), refusal != nullptr ? refusal->param() : std::string(), status)});
}

void act(const Service& service, const std::shared_ptr<ServerReply>& reply, UnderWay under_way,
         std::function<void(ResidentModel&)> action, std::function<Json()> answer) {
  const auto done = [reply, answer = std::move(answer)](const std::exception* error) {
    answer_action(*reply, error, answer);
  };
  service.submit(EngineAction{.under_way = under_way, .act = std::move(action), .done = done});
}

void act_versioned(const Service& service, const std::shared_ptr<ServerReply>& reply, UnderWay under_way,
                   std::function<void(ResidentModel&)> action, std::function<Json(std::int64_t version)> answer) {
  auto version = std::make_shared<std::int64_t>(0);
  const auto versioned = [action = std::move(action), version](ResidentModel& resident) {
    action(resident);
    *version = resident.version();
  };
  act(service, reply, under_way, versioned, [version, answer = std::move(answer)] { return answer(*version); });
}

std::function<Json()> fixed(Json answer) {
  return [answer = std::move(answer)] { return answer; };
}

}  // namespace hone
