// C of wgmma, whose instructions name each of its registers, for their asm statements. HONE_C_n has the operands of the
// first n groups of 8 columns, c[0] to c[n - 1], and HONE_NAMES_n their names in the text.
#pragma once

#define HONE_FOUR(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define HONE_NAMES_1 "%0, %1, %2, %3"
#define HONE_C_1 HONE_FOUR(0)
#define HONE_NAMES_2 HONE_NAMES_1 ", %4, %5, %6, %7"
#define HONE_C_2 HONE_C_1, HONE_FOUR(1)
#define HONE_NAMES_3 HONE_NAMES_2 ", %8, %9, %10, %11"
#define HONE_C_3 HONE_C_2, HONE_FOUR(2)
#define HONE_NAMES_4 HONE_NAMES_3 ", %12, %13, %14, %15"
#define HONE_C_4 HONE_C_3, HONE_FOUR(3)
#define HONE_NAMES_5 HONE_NAMES_4 ", %16, %17, %18, %19"
#define HONE_C_5 HONE_C_4, HONE_FOUR(4)
#define HONE_NAMES_6 HONE_NAMES_5 ", %20, %21, %22, %23"
#define HONE_C_6 HONE_C_5, HONE_FOUR(5)
#define HONE_NAMES_7 HONE_NAMES_6 ", %24, %25, %26, %27"
#define HONE_C_7 HONE_C_6, HONE_FOUR(6)
#define HONE_NAMES_8 HONE_NAMES_7 ", %28, %29, %30, %31"
#define HONE_C_8 HONE_C_7, HONE_FOUR(7)
#define HONE_NAMES_10 HONE_NAMES_8 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define HONE_C_10 HONE_C_8, HONE_FOUR(8), HONE_FOUR(9)
#define HONE_NAMES_12 HONE_NAMES_10 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define HONE_C_12 HONE_C_10, HONE_FOUR(10), HONE_FOUR(11)
#define HONE_NAMES_14 HONE_NAMES_12 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define HONE_C_14 HONE_C_12, HONE_FOUR(12), HONE_FOUR(13)
#define HONE_NAMES_16 HONE_NAMES_14 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define HONE_C_16 HONE_C_14, HONE_FOUR(14), HONE_FOUR(15)
#define HONE_NAMES_18 HONE_NAMES_16 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define HONE_C_18 HONE_C_16, HONE_FOUR(16), HONE_FOUR(17)
#define HONE_NAMES_20 HONE_NAMES_18 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define HONE_C_20 HONE_C_18, HONE_FOUR(18), HONE_FOUR(19)
#define HONE_NAMES_22 HONE_NAMES_20 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define HONE_C_22 HONE_C_20, HONE_FOUR(20), HONE_FOUR(21)
#define HONE_NAMES_24 HONE_NAMES_22 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define HONE_C_24 HONE_C_22, HONE_FOUR(22), HONE_FOUR(23)
#define HONE_NAMES_26 HONE_NAMES_24 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define HONE_C_26 HONE_C_24, HONE_FOUR(24), HONE_FOUR(25)
#define HONE_NAMES_28 HONE_NAMES_26 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define HONE_C_28 HONE_C_26, HONE_FOUR(26), HONE_FOUR(27)
#define HONE_NAMES_30 HONE_NAMES_28 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define HONE_C_30 HONE_C_28, HONE_FOUR(28), HONE_FOUR(29)
#define HONE_NAMES_32 HONE_NAMES_30 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define HONE_C_32 HONE_C_30, HONE_FOUR(30), HONE_FOUR(31)
