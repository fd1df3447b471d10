{
  i := 0;
  while i < |a|
  {
    if a[i] == key { return; }
    i := i + 1;
  }
  i := -1;
}
