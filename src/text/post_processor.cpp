#include "text/post_processor.h"

#include "text/json_fields.h"

namespace hone {
namespace {

// Appends the ids of a special token that a TemplateProcessing names.
void append_ids(std::vector<TokenId>& ids, const Json& processor, const std::string& name, std::string_view where) {
  const Json& token = member(member(processor, "special_tokens"), name.c_str());
  const Json& values = member(token, "ids");
  if (!values.is_array()) {
    throw Error(where, text_of("the post_processor adds ", name, " to a text, but lists no ids for it"));
  }
  for (const Json& id : values) {
    if (!id.is_number_integer()) throw Error(where, text_of("post_processor: an id of ", name, " is ", id.dump()));
    ids.push_back(id.get<TokenId>());
  }
}

TokenId pair_id(const Json& processor, const char* key, std::string_view where) {
  const Json& pair = member(processor, key);
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer()) {
    throw Error(where, text_of("post_processor: ", key, " is ", pair.dump(), ", expected a token and its id"));
  }
  return pair[1].get<TokenId>();
}

}  // namespace

SurroundingTokens read_surrounding_tokens(const Json& post_processor, std::string_view where) {
  SurroundingTokens around;
  if (post_processor.is_null()) return around;
  const std::string type = type_member(post_processor, "post_processor", where);
  if (type == "Sequence") {
    for (const Json& part : member(post_processor, "processors")) {
      const SurroundingTokens more = read_surrounding_tokens(part, where);
      around.leading.insert(around.leading.begin(), more.leading.begin(), more.leading.end());
      around.trailing.insert(around.trailing.end(), more.trailing.begin(), more.trailing.end());
    }
  } else if (type == "TemplateProcessing") {
    bool behind = false;
    for (const Json& piece : member(post_processor, "single")) {
      const Json& special = member(piece, "SpecialToken");
      behind = behind || !special.is_object();
      if (!special.is_object()) continue;
      append_ids(behind ? around.trailing : around.leading, post_processor, string_member(special, "id", where), where);
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    around.leading.push_back(pair_id(post_processor, "cls", where));
    around.trailing.push_back(pair_id(post_processor, "sep", where));
  }
  return around;
}

}  // namespace hone
