{
  low := 0;
  var high := |a|;
  while low < high
  {
    var middle := (low + high) / 2;
    if a[middle] < key { low := middle + 1; } else { high := middle; }
  }
}
