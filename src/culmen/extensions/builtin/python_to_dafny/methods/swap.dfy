{ a[i], a[j] := a[j], a[i]; }
