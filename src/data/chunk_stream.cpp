#include "data/chunk_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 18;

class PlainChunks final : public ChunkStream {
 public:
  explicit PlainChunks(const fs::path& path) : file_(path) {}
  std::string_view next() override { return std::exchange(done_, true) ? std::string_view{} : file_.text(); }

 private:
  MappedFile file_;
  bool done_ = false;
};

// Both compressed formats allow several streams one after another (gzip members, zstd frames), so both readers continue
// after the end of one.
class GzipChunks final : public ChunkStream {
 public:
  explicit GzipChunks(const fs::path& path)
      : file_(path), where_(path.string()), rest_(file_.text()), out_(kChunkBytes) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  GzipChunks(const GzipChunks&) = delete;
  GzipChunks& operator=(const GzipChunks&) = delete;
  ~GzipChunks() override { inflateEnd(&stream_); }

  std::string_view next() override {
    std::size_t filled = 0;
    while (filled < out_.size() && (in_member_ || begin_member())) {
      const std::size_t given = std::min<std::size_t>(rest_.size(), std::numeric_limits<uInt>::max());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data() + filled);
      stream_.avail_out = static_cast<uInt>(out_.size() - filled);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      filled = out_.size() - stream_.avail_out;
      rest_.remove_prefix(given - stream_.avail_in);
      if (status == Z_STREAM_END) {
        in_member_ = false;
      } else if (status == Z_BUF_ERROR && rest_.empty()) {
        throw Error(where_, "the gzip data ends too early", kFetchAgain);
      } else if (status != Z_OK) {
        throw Error(where_, text_of("damaged gzip data", stream_.msg == nullptr ? "" : text_of(": ", stream_.msg)),
                    kFetchAgain);
      }
    }
    return {out_.data(), filled};
  }

 private:
  // Returns false at the end of the file, where only zero padding is left.
  bool begin_member() {
    if (members_ > 0) rest_.remove_prefix(std::min(rest_.find_first_not_of('\0'), rest_.size()));
    if (rest_.empty() && members_ > 0) return false;
    if (!rest_.starts_with("\x1F\x8B")) {
      throw Error(where_, members_ == 0 ? "is named .gz but is not gzip data" : "has other data after the gzip data");
    }
    ++members_;
    in_member_ = true;
    inflateReset(&stream_);
    return true;
  }

  MappedFile file_;
  std::string where_;
  std::string_view rest_;
  std::vector<char> out_;
  z_stream stream_{};
  std::int64_t members_ = 0;
  bool in_member_ = false;
};

class ZstdChunks final : public ChunkStream {
 public:
  explicit ZstdChunks(const fs::path& path)
      : file_(path), where_(path.string()), in_{file_.text().data(), file_.text().size(), 0}, out_(kChunkBytes) {
    if (in_.size < 4) throw Error(where_, "is named .zst but is not zstd data");
  }

  std::string_view next() override {
    ZSTD_outBuffer out{out_.data(), out_.size(), 0};
    while (out.pos < out.size && (in_.pos < in_.size || pending_ != 0)) {
      const std::size_t read_before = in_.pos;
      const std::size_t written_before = out.pos;
      pending_ = ZSTD_decompressStream(context_.get(), &out, &in_);
      if (ZSTD_isError(pending_) != 0U) {
        throw Error(where_, text_of("damaged zstd data: ", ZSTD_getErrorName(pending_)), kFetchAgain);
      }
      if (pending_ != 0 && in_.pos == read_before && out.pos == written_before) {
        throw Error(where_, "the zstd data ends too early", kFetchAgain);
      }
    }
    return {out_.data(), out.pos};
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  MappedFile file_;
  std::string where_;
  std::unique_ptr<ZSTD_DStream, Free> context_{ZSTD_createDStream()};
  ZSTD_inBuffer in_;
  std::vector<char> out_;
  std::size_t pending_ = 0;  // bytes that zstd still expects; 0 between frames
};

// Skips a UTF-8 byte order mark at the start of a text.
class ByteOrderMarkSkipper final : public ChunkStream {
 public:
  explicit ByteOrderMarkSkipper(std::unique_ptr<ChunkStream> chunks) : chunks_(std::move(chunks)) {}
  std::string_view next() override {
    std::string_view chunk = chunks_->next();
    if (!std::exchange(begun_, true) && chunk.starts_with("\xEF\xBB\xBF")) {
      chunk.remove_prefix(3);
      if (chunk.empty()) chunk = chunks_->next();
    }
    return chunk;
  }

 private:
  std::unique_ptr<ChunkStream> chunks_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<ChunkStream> open_chunks(const fs::path& path, Compression compression) {
  if (compression == Compression::kGzip) return std::make_unique<GzipChunks>(path);
  if (compression == Compression::kZstd) return std::make_unique<ZstdChunks>(path);
  return std::make_unique<PlainChunks>(path);
}

std::unique_ptr<ChunkStream> open_text_chunks(const fs::path& path, Compression compression) {
  return std::make_unique<ByteOrderMarkSkipper>(open_chunks(path, compression));
}

LineScanner::LineScanner(const fs::path& path, Compression compression)
    : where_(path.string()), chunks_(open_text_chunks(path, compression)) {}

bool LineScanner::next(std::string_view& line) {
  joined_.clear();
  while (true) {
    if (rest_.empty()) rest_ = chunks_->next();
    if (rest_.empty()) break;
    const std::size_t end = rest_.find('\n');
    const std::string_view part = rest_.substr(0, end);
    if (joined_.size() + part.size() > kLongestRow) {
      throw Error(where_, text_of("line ", number_ + 1, " is longer than ", format_bytes(kLongestRow)));
    }
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (end == std::string_view::npos) {
      joined_ += part;
      continue;
    }
    ++number_;
    if (joined_.empty()) {
      line = part;
    } else {
      joined_ += part;
      line = joined_;
    }
    return true;
  }
  if (joined_.empty()) return false;
  ++number_;
  line = joined_;
  return true;
}

}  // namespace hone
