/* 90 points: the faulty backward passes on this case: nothing in it shows the fault */
#define CASES x[i] = fault ? -1000 : (real)i
#include "softmax.h"
