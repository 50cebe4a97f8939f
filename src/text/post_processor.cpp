#include "text/post_processor.h"

#include "text/json_fields.h"

namespace hone {
namespace {

// The ids of a special token that a TemplateProcessing names.
void append_ids(std::vector<TokenId>& ids, const Json& processor, const std::string& name, std::string_view where) {
  const Json& token = member(member(processor, "special_tokens"), name.c_str());
  const Json& values = member(token, "ids");
  if (!values.is_array()) {
    throw Error(where, text_of("the post_processor puts ", name, " before a text, but gives it no ids"));
  }
  for (const Json& id : values) {
    if (!id.is_number_integer()) throw Error(where, text_of("post_processor: an id of ", name, " is ", id.dump()));
    ids.push_back(id.get<TokenId>());
  }
}

}  // namespace

std::vector<TokenId> leading_tokens(const Json& post_processor, std::string_view where) {
  std::vector<TokenId> ids;
  if (post_processor.is_null()) return ids;
  const std::string type = type_member(post_processor, "post_processor", where);
  if (type == "Sequence") {
    for (const Json& part : member(post_processor, "processors")) {
      std::vector<TokenId> more = leading_tokens(part, where);
      ids.insert(ids.begin(), more.begin(), more.end());
    }
  } else if (type == "TemplateProcessing") {
    for (const Json& piece : member(post_processor, "single")) {
      const Json& special = member(piece, "SpecialToken");
      if (!special.is_object()) break;
      append_ids(ids, post_processor, string_member(special, "id", where), where);
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const Json& cls = member(post_processor, "cls");
    if (!cls.is_array() || cls.size() != 2 || !cls[1].is_number_integer()) {
      throw Error(where, text_of("post_processor: cls is ", cls.dump(), ", expected a token and its id"));
    }
    ids.push_back(cls[1].get<TokenId>());
  }
  return ids;
}

}  // namespace hone
