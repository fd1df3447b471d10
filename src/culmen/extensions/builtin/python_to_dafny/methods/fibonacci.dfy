{
  a := 0;
  var b, i := 1, 0;
  while i < n
  { a, b := b, a + b; i := i + 1; }
}
