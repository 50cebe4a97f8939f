// The parameters of requests that restrict what the model writes.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "grammar/grammar.h"

namespace hone {

class RequestParameters;
struct GenerationRequest;

// A grammar that a request asks for.
struct RequestedGrammar {
  GrammarSpec spec;
  std::string param;  // that asks for it
};

// A tool call that a request asks for.
struct DemandedCall {
  std::string tool;   // empty: any of the request's
  std::string param;  // that asks for it
};

// Reads OpenAI's response_format and vLLM's structured_outputs, guided_json, guided_regex, guided_choice and
// guided_grammar, of which a request may have one. Throws RequestError.
void read_structured_output(RequestParameters& parameters, GenerationRequest& request);
// Reads a format of OpenAI's APIs: text, json_object, json_schema or structural_tag. `param` names it. The schema is in
// the format itself or in its member json_schema. Throws RequestError.
void read_response_format(const Json& format, const std::string& param, GenerationRequest& request);

// Returns the grammar of an answer that consists of calls of one of the tools, or of one call if a tool is named, in
// the form that the chat template shows to the model (serve/tool_calls.h). `tools` are those of chat completions.
// Throws RequestError if a tool has no name or the named one does not exist.
[[nodiscard]] RequestedGrammar grammar_of_calls(const Json& tools, const DemandedCall& call,
                                                std::string_view chat_template);

}  // namespace hone
