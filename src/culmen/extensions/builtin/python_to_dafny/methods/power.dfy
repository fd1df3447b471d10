{
  r := 1;
  var i := 0;
  while i < e
  { r := b * r; i := i + 1; }
}
