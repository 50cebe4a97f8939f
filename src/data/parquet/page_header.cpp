#include <string>

#include "core/error.h"
#include "data/file_format.h"
#include "data/parquet/metadata.h"
#include "data/parquet/thrift.h"

namespace hone {
namespace {

parquet::Encoding read_encoding(ThriftReader& in, ThriftField field) {
  return static_cast<parquet::Encoding>(in.integer32(field));
}

void read_data_page_header(ThriftReader& in, ThriftField outer, ParquetPageHeader& page) {
  in.read_struct(outer, [&](ThriftField field) {
    switch (field.id) {
      case parquet::DataPageHeader::kNumValues:
        page.values = in.integer32(field);
        return true;
      case parquet::DataPageHeader::kEncoding:
        page.encoding = read_encoding(in, field);
        return true;
      case parquet::DataPageHeader::kDefinitionLevelEncoding:
        page.definition_encoding = read_encoding(in, field);
        return true;
      case parquet::DataPageHeader::kRepetitionLevelEncoding:
        page.repetition_encoding = read_encoding(in, field);
        return true;
      default:
        return false;
    }
  });
}

void read_dictionary_page_header(ThriftReader& in, ThriftField outer, ParquetPageHeader& page) {
  in.read_struct(outer, [&](ThriftField field) {
    switch (field.id) {
      case parquet::DictionaryPageHeader::kNumValues:
        page.values = in.integer32(field);
        return true;
      case parquet::DictionaryPageHeader::kEncoding:
        page.encoding = read_encoding(in, field);
        return true;
      default:
        return false;
    }
  });
}

void read_data_page_header_v2(ThriftReader& in, ThriftField outer, ParquetPageHeader& page) {
  in.read_struct(outer, [&](ThriftField field) {
    switch (field.id) {
      case parquet::DataPageHeaderV2::kNumValues:
        page.values = in.integer32(field);
        return true;
      case parquet::DataPageHeaderV2::kEncoding:
        page.encoding = read_encoding(in, field);
        return true;
      case parquet::DataPageHeaderV2::kDefinitionLevelsByteLength:
        page.definition_bytes = in.integer32(field);
        return true;
      case parquet::DataPageHeaderV2::kRepetitionLevelsByteLength:
        page.repetition_bytes = in.integer32(field);
        return true;
      case parquet::DataPageHeaderV2::kIsCompressed:
        page.is_compressed = in.boolean(field);
        return true;
      default:
        return false;
    }
  });
}

}  // namespace

ParquetPageHeader read_page_header(std::string_view bytes, const std::string& where, std::size_t& size) {
  ThriftReader in(bytes, where);
  ParquetPageHeader page;
  std::int32_t type = -1;
  in.read_struct([&](ThriftField field) {
    switch (field.id) {
      case parquet::PageHeader::kType:
        type = in.integer32(field);
        return true;
      case parquet::PageHeader::kUncompressedPageSize:
        page.plain_bytes = in.integer32(field);
        return true;
      case parquet::PageHeader::kCompressedPageSize:
        page.stored_bytes = in.integer32(field);
        return true;
      case parquet::PageHeader::kCrc:
        page.checksum = static_cast<std::uint32_t>(in.integer32(field));
        page.has_checksum = true;
        return true;
      case parquet::PageHeader::kDataPageHeader:
        read_data_page_header(in, field, page);
        return true;
      case parquet::PageHeader::kDictionaryPageHeader:
        read_dictionary_page_header(in, field, page);
        return true;
      case parquet::PageHeader::kDataPageHeaderV2:
        read_data_page_header_v2(in, field, page);
        return true;
      default:
        return false;
    }
  });
  if (!is_value(type, parquet::PageType::kDataPageV2) || page.plain_bytes < 0 || page.stored_bytes < 0 ||
      page.values < 0 || page.definition_bytes < 0 || page.repetition_bytes < 0) {
    throw Error(where, "damaged page header", kFetchAgain);
  }
  page.type = static_cast<parquet::PageType>(type);
  size = in.consumed();
  return page;
}

}  // namespace hone
