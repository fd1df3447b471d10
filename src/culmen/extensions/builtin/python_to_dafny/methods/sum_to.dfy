{
  s := 0;
  var i := 0;
  while i < n
  { i := i + 1; s := s + i; }
}
