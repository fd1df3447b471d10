{
  q := 0;
  r := a;
  while r >= b
  { r := r - b; q := q + 1; }
}
