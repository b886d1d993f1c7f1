/* 0 points: two_of_a_name.c cannot be linked with libc and libm alone */
#include "../../solutions/2-elements/elements.c"

int main(void)
{
    return 0;
}
