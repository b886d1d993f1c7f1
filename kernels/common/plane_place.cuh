// plane_place.cuh - where in which plane an element is.
#ifndef GD_PLANE_PLACE_CUH
#define GD_PLANE_PLACE_CUH

// The plane, row and column of element e of planes [rows, cols]. Index is unsigned for fewer than
// 2^31 elements: 64-bit divisions take longer than the memory does.
template <class Index>
struct gd_plane_place {
    Index plane, row, col;

    __device__ gd_plane_place(Index e, Index rows, Index cols)
    {
        const Index line = e / cols;
        col = e - line * cols;
        plane = line / rows;
        row = line - plane * rows;
    }
};

#endif
