# hone_reduced_json(TARGET)
#
# Gives TARGET, and what uses it, a copy of <nlohmann/json.hpp> without what hone does not use: the literals ""_json and
# ""_json_pointer, the binary formats and JSON Patch. The literals are inline functions that are no templates, so that
# each source that includes the header instantiates the parser for them: 0.45 s a source with g++ 12. The others are a
# quarter of the instantiation of the class (core/json.cpp). A header of another form is copied as it is.
function(hone_reduced_json target)
  find_file(HONE_JSON_HEADER nlohmann/json.hpp REQUIRED)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${HONE_JSON_HEADER})
  file(READ ${HONE_JSON_HEADER} text)
  foreach(literal _json _json_pointer)
    string(REGEX REPLACE "JSON_HEDLEY_NON_NULL\\(1\\)\ninline [^\n]* operator \"\" ?${literal}\\([^\n]*\n{[^}]*}\n" "" text "${text}")
    string(REGEX REPLACE "\n *using nlohmann::literals::json_literals::operator \"\" ?${literal};[^\n]*" "" text "${text}")
  endforeach()
  hone_cut(text "    // binary serialization/deserialization //" "    // JSON Pointer support //")
  hone_cut(text "    // JSON Patch functions //" "    // JSON Merge Patch functions //")
  set(folder ${CMAKE_BINARY_DIR}/generated/json)
  file(WRITE ${folder}/json.hpp.new "${text}")
  file(MAKE_DIRECTORY ${folder}/nlohmann)
  file(COPY_FILE ${folder}/json.hpp.new ${folder}/nlohmann/json.hpp ONLY_IF_DIFFERENT)
  target_include_directories(${target} SYSTEM BEFORE PUBLIC ${folder})
endfunction()

# hone_cut(VARIABLE FIRST LAST): removes members of a class from a text, those between two comments.
function(hone_cut variable first last)
  string(FIND "${${variable}}" "${first}" begin)
  string(FIND "${${variable}}" "${last}" end)
  if(begin GREATER -1 AND end GREATER begin)
    string(SUBSTRING "${${variable}}" 0 ${begin} before)
    string(SUBSTRING "${${variable}}" ${end} -1 after)
    set(${variable} "${before}\n  public:\n${after}" PARENT_SCOPE)
  endif()
endfunction()
