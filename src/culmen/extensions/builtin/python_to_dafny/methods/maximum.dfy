{
  m := a[0];
  var i := 1;
  while i < |a|
  {
    if a[i] > m { m := a[i]; }
    i := i + 1;
  }
}
