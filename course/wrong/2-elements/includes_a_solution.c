/* 0 points: elements.c; it may include course.h and the system's headers alone */
#include "../../solutions/2-elements/elements.c"
