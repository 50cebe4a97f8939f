// Categories of operations and their colors.
export const CATEGORIES = ["GEMM", "attention", "normalization", "activation", "loss", "optimizer", "memory", "other"];
// The color of a category; the smaller ones share the last.
export const colorOf = (category) => {
  const index = CATEGORIES.indexOf(category);
  return index < 0 ? CATEGORIES.length - 1 : index;
};
