# kvarto_embed(TARGET NAME FILE) compiles FILE into TARGET as
#   extern const char kvarto::embedded::NAME[]; extern const unsigned long kvarto::embedded::NAME_bytes;
function(kvarto_embed target name file)
  set(output ${PROJECT_BINARY_DIR}/generated/embedded_${name}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D INPUT=${file} -D OUTPUT=${output} -D NAME=${name}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake VERBATIM)
  # A custom command is known to the targets of its own folder only, so the file is compiled there.
  add_library(embedded_${name} OBJECT ${output})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:embedded_${name}>)
endfunction()
