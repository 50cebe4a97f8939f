// The endpoints, each a function that answers a request through its reply. They throw RequestError, and Error for
// whatever else is wrong with a request.
#pragma once

#include <memory>

#include "http/message.h"
#include "serve/service.h"

namespace hone {

using Endpoint = void (*)(const Service& service, const ServerRequest& request,
                          const std::shared_ptr<ServerReply>& reply);

void answer_health(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_version(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_metrics(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_models(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_tokenize(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_detokenize(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_page(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_chat(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_completions(const Service& service, const ServerRequest& request,
                        const std::shared_ptr<ServerReply>& reply);
void answer_messages(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_responses(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);

}  // namespace hone
