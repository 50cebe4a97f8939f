# hone_json_without_literals(TARGET)
#
# Gives TARGET, and what uses it, a copy of <nlohmann/json.hpp> without the literals ""_json and ""_json_pointer, which
# hone does not use. They are inline functions that are no templates, so that each source that includes the header
# instantiates the parser for them: 0.45 s a source with g++ 12. A header of another form is copied as it is.
function(hone_json_without_literals target)
  find_file(HONE_JSON_HEADER nlohmann/json.hpp REQUIRED)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${HONE_JSON_HEADER})
  file(READ ${HONE_JSON_HEADER} text)
  foreach(literal _json _json_pointer)
    string(REGEX REPLACE "JSON_HEDLEY_NON_NULL\\(1\\)\ninline [^\n]* operator \"\" ?${literal}\\([^\n]*\n{[^}]*}\n" "" text "${text}")
    string(REGEX REPLACE "\n *using nlohmann::literals::json_literals::operator \"\" ?${literal};[^\n]*" "" text "${text}")
  endforeach()
  set(folder ${CMAKE_BINARY_DIR}/generated/json)
  file(WRITE ${folder}/json.hpp.new "${text}")
  file(MAKE_DIRECTORY ${folder}/nlohmann)
  file(COPY_FILE ${folder}/json.hpp.new ${folder}/nlohmann/json.hpp ONLY_IF_DIFFERENT)
  target_include_directories(${target} SYSTEM BEFORE PUBLIC ${folder})
endfunction()
