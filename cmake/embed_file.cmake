file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
file(WRITE ${OUTPUT} "namespace kvarto {\nnamespace embedded {\n\
extern const char ${NAME}[];\nextern const unsigned long ${NAME}_bytes;\n\
const char ${NAME}[] = {${bytes}'\\0'};\nconst unsigned long ${NAME}_bytes = sizeof(${NAME}) - 1;\n}\n}\n")
