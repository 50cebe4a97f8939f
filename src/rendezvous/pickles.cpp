#include "rendezvous/pickles.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace hone {
namespace {

// Opcodes of protocol 4, with the bytes of their arguments after them.
constexpr char kProto = '\x80';            // a byte
constexpr char kFrame = '\x95';            // u64, the length of what follows
constexpr char kShortBinUnicode = '\x8c';  // a byte of length, and the text
constexpr char kMemoize = '\x94';
constexpr char kStackGlobal = '\x93';
constexpr char kEmptyDict = '}';
constexpr char kShortBinBytes = 'C';  // a byte of length, and the bytes
constexpr char kTuple2 = '\x86';
constexpr char kReduce = 'R';
constexpr char kStop = '.';

constexpr std::string_view kModule = "vllm.distributed.device_communicators.pynccl_wrapper";
constexpr std::string_view kClass = "ncclUniqueId";
constexpr char kProtocol = 4;

void append_text(std::string& pickle, char opcode, std::string_view text) {
  pickle += opcode;
  pickle += static_cast<char>(text.size());
  pickle += text;
  pickle += kMemoize;
}

// Puts the header of protocol 4 before the opcodes.
std::string framed(std::string_view opcodes) {
  std::string pickle{kProto, kProtocol, kFrame};
  const auto length = static_cast<std::uint64_t>(opcodes.size());
  pickle.append(reinterpret_cast<const char*>(&length), sizeof length);
  pickle += opcodes;
  return pickle;
}

[[noreturn]] void refuse(std::string_view what) {
  throw Error("the NCCL id of the trainer", text_of("is not a pickled ncclUniqueId: ", what));
}

class OpcodeReader {
 public:
  explicit OpcodeReader(std::string_view pickle) : rest_(pickle) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  char opcode() { return take(1).front(); }
  std::string_view take(std::size_t count) {
    if (rest_.size() < count) refuse("it ends early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view short_text() { return take(static_cast<unsigned char>(opcode())); }

 private:
  std::string_view rest_;
};

}  // namespace

std::string pickle_of(const UniqueId& id) {
  // _ctypes._unpickle(ncclUniqueId, ({}, bytes))
  std::string opcodes;
  append_text(opcodes, kShortBinUnicode, "_ctypes");
  append_text(opcodes, kShortBinUnicode, "_unpickle");
  opcodes.append({kStackGlobal, kMemoize});
  append_text(opcodes, kShortBinUnicode, kModule);
  append_text(opcodes, kShortBinUnicode, kClass);
  opcodes.append({kStackGlobal, kMemoize, kEmptyDict, kMemoize});
  append_text(opcodes, kShortBinBytes, {reinterpret_cast<const char*>(id.data()), id.size()});
  opcodes.append({kTuple2, kMemoize, kTuple2, kMemoize, kReduce, kMemoize, kStop});
  return framed(opcodes);
}

UniqueId unique_id_from_pickle(std::string_view pickle) {
  OpcodeReader reader(pickle);
  std::optional<UniqueId> id;
  bool named = false;
  for (;;) {
    switch (const char opcode = reader.opcode()) {
      case kProto:
        if (const char protocol = reader.opcode(); protocol != 4 && protocol != 5)
          refuse(text_of("its protocol is ", static_cast<int>(protocol)));
        break;
      case kFrame:
        (void)reader.take(sizeof(std::uint64_t));
        break;
      case kShortBinUnicode:
        named |= reader.short_text() == kClass;
        break;
      case kShortBinBytes: {
        const std::string_view bytes = reader.short_text();
        if (bytes.size() != sizeof(UniqueId) || id) refuse(text_of("it has ", bytes.size(), " bytes"));
        std::memcpy(id.emplace().data(), bytes.data(), bytes.size());
        break;
      }
      case kMemoize:
      case kStackGlobal:
      case kEmptyDict:
      case kTuple2:
      case kReduce:
        break;
      case kStop:
        if (!reader.at_end() || !named || !id) refuse("it is another object");
        return *id;
      default:
        refuse(text_of("it has the opcode ", static_cast<int>(static_cast<unsigned char>(opcode))));
    }
  }
}

std::string pickle_of(std::string_view text) {
  HONE_ASSERT(text.size() <= 255, text.size(), " bytes");
  std::string opcodes;
  append_text(opcodes, kShortBinUnicode, text);
  opcodes += kStop;
  return framed(opcodes);
}

}  // namespace hone
