{
  var i := 0;
  while i < |a|
  {
    if a[i] != a[|a| - 1 - i] { return false; }
    i := i + 1;
  }
  return true;
}
