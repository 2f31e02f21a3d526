/* For cppcheck, which does not find cjson/cJSON.h: make lint. */
#define cJSON_ArrayForEach(element, list) for (element = (list) ? (list)->child : 0; element; element = element->next)
