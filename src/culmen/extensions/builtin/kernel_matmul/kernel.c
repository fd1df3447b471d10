/* EVOLVE-BLOCK-START */
/* c = op(a) op(b): a is (m, k), or (k, m) if ta; b is (k, n), or (n, k) if tb. */
static void product(int m, int k, int n, int ta, int tb, const float *a, const float *b, float *c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++)
                sum += (ta ? a[l * m + i] : a[i * k + l]) * (tb ? b[j * k + l] : b[l * n + j]);
            c[i * n + j] = sum;
        }
}

void kernel(int problem, int batch, int m, int k, int n, const float *a, const float *b, float *c)
{
    if (problem == 5) {
        for (int i = 0; i < m * n; i++) c[i] = a[i] * b[0];
    } else if (problem == 12) {
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) c[i * n + j] = a[i] * b[i * n + j];
    } else if (problem == 3) {
        for (int q = 0; q < batch; q++) product(m, k, n, 0, 0, a + q * m * k, b + q * k * n, c + q * m * n);
    } else {
        product(batch * m, k, n, problem == 16 || problem == 18, problem >= 17, a, b, c);
    }
}
/* EVOLVE-BLOCK-END */
