{
  n := 0;
  var i := 0;
  while i < |a|
  {
    if a[i] == key { n := n + 1; }
    i := i + 1;
  }
}
