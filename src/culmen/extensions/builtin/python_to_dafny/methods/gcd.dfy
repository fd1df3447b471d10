{
  g := a;
  var h := b;
  while g != h
  { if g > h { g := g - h; } else { h := h - g; } }
}
