{
  b := [];
  var i := 0;
  while i < |a|
  { b := [a[i]] + b; i := i + 1; }
}
