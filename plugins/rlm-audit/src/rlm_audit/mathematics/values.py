"""Numbers and functions: notations of one value, small changes of it, and texts that have another value or none."""

from __future__ import annotations

from rlm_audit.kinds import Kind, read_kinds

_IDENTITIES = (
    (r"\sin(2 \cdot <k>x)", r"2\sin(<k>x)\cos(<k>x)", r"\sin(<k>x)\cos(<k>x)"),
    (r"\cos(2 \cdot <k>x)", r"1-2\sin^2(<k>x)", r"1-\sin^2(<k>x)"),
    (r"\tan^2(<k>x)+1", r"\sec^2(<k>x)", r"\sec(<k>x)"),
    (r"\sin^2(<k>x)+\cos^2(<k>x)", "1", "<k>+1"),
    ("e^{<k>x}", "(e^x)^<k>", "e^{x^<k>}+1"),
    (r"\ln(x^<k>)+\ln 2", r"\ln(2x^<k>)", r"\ln(x^<k>+2)"),
    ("|<k>x|", r"\sqrt{<k>^2x^2}", "<k>x"),
    ("x^{<k>/3}", r"\sqrt[3]{x^<k>}", "x^{<k>}+1"),
    (r"\frac{x^<k>-1}{x-1}", r"\frac{1-x^<k>}{1-x}", r"\frac{x^<k>+1}{x-1}"),
    ("2^{n+<k>}", r"2^<k> \cdot 2^n", "2^{n<k>}"),
    ("(-1)^{n+<k>}", "(-1)^n(-1)^<k>", "(-1)^{n+<k>+1}"),
    (r"\frac{n(n+<k>)}{2}", r"\frac{n^2+<k>n}{2}", r"\frac{n^2+<k>}{2}"),
    ("n!", "n(n-1)!", "<k>n!+1"),
    ("<k>xy+x^2", "x(x+<k>y)", "x(y+<k>x)"),
    ("(a+b)^2-<k>ab", "a^2+b^2+(2-<k>)ab", "a^2+b^2+<k>ab+1"),
    (r"\cosh(<k>x)", r"\frac{e^{<k>x}+e^{-<k>x}}{2}", r"\frac{e^{<k>x}-e^{-<k>x}}{2}"),
)
"""(expression, an equal one, a different one), each with a number k."""
IDENTITIES = {
    f"identity of {expression}": Kind(
        draw={"k": "r(2,8)"},
        same=(expression, equal, f"{expression}+x-x"),
        other=(different, f"-({equal})", f"{equal}+1", f"{equal}+10^{{-<r(10,300)>}}"),
    )
    for expression, equal, different in _IDENTITIES
}
NUMBERS_AND_FUNCTIONS = IDENTITIES | read_kinds(r"""
integer
  draw n=r(1,10**(2*s))*one((-1,1))
  let m=r(-(10**6),10**6)  k=r(1,40)  t=str(n)
  same <n>  <format(n,',')>  <format(n,',').replace(',','{,}')>  <format(n,',').replace(',','\\,')>  <n>.00  <m><+n-m>
      \frac{<7*n>}{7}  <'('*k><n><')'*k>  x = <n>  = <n>  <n>\text{ apples}  \boxed{<n>}  \sqrt{<n*n>} ? n > 0
      ∛<n**3> ? n > 0
  change n=n+1  n=n-1  n=-n  n=10*n  n=int(altered(str(n)))
  other <n>, <n+1>  <n>\text{ or }<n+1>  \pm <abs(n)>  x > <n>  \neq <n>  <n+1> = <n>  x = <n+1> = <n>
      <n> \pmod{<abs(n)+2>}  <n>_{<r(2,9)>} ? abs(n) > 9  <n>\text{ million}  0,<n> ? n > 99
      <t[:-1]>\,<t[-1]> ? abs(n) > 9  <t[:-1]>$<t[-1]> ? abs(n) > 9  <t[:-1]>^<t[-1]> ? abs(n) > 9
      <t[:-1]><chr(8320+int(t[-1]))> ? abs(n) > 9  <n> 7  \phantom{<n+1>}<n>  \color{white}{<n>}  \cancel{<n>}
      [<n>, <n>]  (<n>, <n>)  <n>\ldots  <n>^{1}0
power
  draw b=r(2,5+s)  e=r(30,60+60*s)  o=one((-1,1,r(2,99)))
  let k=r(1,e-1)
  same <b>^{<e>}<+o>  <b>^{<k>} \cdot <b>^{<e-k>}<+o>  <b**e+o>  \frac{<6*(b**e+o)>}{6}  \frac{2(<b>^{<e>}<+o>)}{2}
  change o=o+1  o=-o  e=e+1  b=b+1
  other <b>^{<e>}<+o>+2^{-<r(30,300)>}  <b>^{<e>}
factorial
  draw n=r(30,60+60*s)  o=r(-99,99)
  same <n>!<+o>  <n> \cdot <n-1>!<+o>  <factorial(n)+o>
  change o=o+1  n=n+1
number near a limit
  draw n=r(1,9*s)  b=r(2,12)  e=r(20,300)
  same <n>  <n>+\sin(2^{<e>}\pi)  <n> \cdot (\cosh^2(300)-\sinh^2(300))  <n>\frac{<b>^{<e>}}{<b>^{<e>}}
  other <n>+<b>^{-<e>}  <n>-\frac{1}{<b>^{<e>}}  <n>+e^{-<10*e>}  \sqrt{<n*n>+10^{-<e>}}  <n>\cos(10^{-<e>})
      <n>+1-\tanh(1000)  <n>+1-\tanh(10^{<e>})  <n>\coth(2000)  <n>+\sin(2^{<e>}\pi x)
      <n>+\frac{\pi}{2}-\arctan(10^{<e>})  <n-1>+0^0  <n-1>.<'9'*50>  \frac{<n><'0'*e>1}{10^{<e+1>}}  \frac{<n>}{0}
      <n>+\frac{0}{1-1}  \ln 0
repeating decimal
  draw w=r(0,s)  f=str(r(0,99))  c=str(r(1,10**(1+s//2)-2))
  let v=Fraction(int(f'{w}{f}{c}')-int(f'{w}{f}'),10**len(f)*(10**len(c)-1))
  where len(f+c) < 5
  same <w>.<f>\overline{<c>}  <v>  <w>.<f><3*c>\ldots  <w>.<f>\bar{<c>}
  change w=w+1
  other <w>.<f><c>  <w>.<f><3*c><c[:-1]><(int(c[-1])+5)%10>\ldots
base
  draw n=r(2,10**(s+1))  b=r(2,7)
  let d=''.join(str(n//b**k%b)for(k)in(range(int(log(n,b)+1e-9),-1,-1)))
  same <d>_{<b>}  (<d>)_{<b>}  <d>_<b>  <d>
  change n=n+1
  other <d>_{<b+1>} ? n >= b
fraction
  draw n=r(1,10**s)*one((-1,1))  d=r(2,6*s+3)
  let v=Fraction(n,d)  w=abs(n)//d
  where d > 1 and gcd(n, d) == 1
  same <v>  <n>/<d>  \frac{<3*n>}{<3*d>}  \frac{<-n>}{-<d>}  <w>\frac{<n%d>}{<d>} ? n > d  <plain(v)> ? terminates(v)
      <v-Fraction(1,2)>+\frac12  \frac{<v/2>}{\frac{1}{2}}  x = <v>  <n> \cdot <d>^{-1}  <n>:<d>
  change n=n+1  d=d+1  n,d=d,n  n=-n  n=n+d
  other <n>, <d>  <d>:<n> ? n > 0  <format(n/d,'.2f')> ? not terminates(v) and abs(v) < 99
decimal
  draw p=r(1,s+1)  n=(r(1,10**one((p,s+p)))*10+r(1,9))*one((-1,1))
  let v=Fraction(n,10**(p+1))
  same <plain(v)>  <plain(v)>00  <v>  <plain(v).replace('0.','.',1)> ? abs(v) < 1  <plain(v/1000)> \times 10^{3}
      <plain(v*100)> \cdot 10^{-2}  <plain(v*100)>e-2  <plain(v*100)>\%  <plain(v*1000)>‰
      <plain(v).replace('.',',')> ? p != 2
  change n=n+1  n=n-1  n=-n  p=p+1
  other <plain(v*100)>‰  <plain(v)>\% ? abs(v) < 1
surd
  draw a=r(-3*s,3*s)  b=r(1,3*s)*one((-1,1))  n=one((2,3,5,6,7,10,11,13))
  where a and b
  same <a><+b>\sqrt{<n>}  <a><sgn(b)>\sqrt{<b*b*n>}  \frac{<2*a><+2*b>\sqrt{<n>}}{2}  <b>\sqrt{<n>}<+a>
      <a><+b> \cdot <n>^{1/2}  <a><+b>\sqrt[4]{<n*n>}  \frac{<a*a-b*b*n>}{<a><+-b>\sqrt{<n>}}  <a><+b>√<n> ? n < 10
  change a=-a  b=-b  n=n+1  a=a+1  b=b+1  a,b=b,a
  other <format(a+b*n**.5,'.2f')>  <a> \pm <abs(b)>\sqrt{<n>}
nested root
  draw a=r(1,6*s)  b=r(2,14*s)
  where a < b and isqrt(a * b) ** 2 != a * b
  same \sqrt{<a>}+\sqrt{<b>}  \sqrt{<a+b>+2\sqrt{<a*b>}}  \frac{<b-a>}{\sqrt{<b>}-\sqrt{<a>}}
  change b=b+1  a,b=a+1,b-1
  other \sqrt{<a+b>}
complex number
  draw a=r(-9*s,9*s)  b=r(1,9*s)*one((-1,1))
  where a and b
  same <a><+b>i  <b>i<+a>  \frac{(<a><+b>i)(1-i)}{1-i}  <a><+b> \cdot i^{<4*r(1,500)+1>}  <a><sgn(b)>\sqrt{-<b*b>}
  change b=-b  a=a+1  b=b+1  a,b=b,a  a,b=-a,-b
  other (<a>, <b>)  \sqrt{<a*a+b*b>}  <a><+b>j  <a><+b>\hat{i}
polar form
  draw m=r(1,9*s)  k=r(1,23)
  where k % 12
  same <m>e^{<k>i\pi/12}  <m>\operatorname{cis} <15*k>^\circ
      <m>\left(\cos\frac{<k>\pi}{12} + i\sin\frac{<k>\pi}{12}\right)
  change m=m+1  k=k+1  k=24-k
multiple of π
  draw n=r(1,10**s)  d=r(2,6*s+3)
  where d > 1 and gcd(n, d) == 1
  same \frac{<n>\pi}{<d>}  \frac{<n>}{<d>}\pi  <n>\pi/<d>  \pi \cdot \frac{<n>}{<d>}  \frac{<4*n>}{<d>}\arctan(1)
  change n=n+1  n=-n  n,d=d,n
  other \frac{<22*n>}{<7*d>}  <format(n/d*pi,'.2f')> ? n/d < 90  \frac{<n>}{<d>}  \frac{<n>}{<d>}\pi^2
sine
  draw k=15*r(-23,23)
  where k % 90
  same \sin(<k>^\circ)  \cos(<90-k>^\circ)  \sin(\frac{<k>\pi}{180})  \sin(<180-k>^\circ)
      2\sin(<k/2>^\circ)\cos(<k/2>^\circ)
  change k=k+15
  other -\sin(<k>^\circ)  \cos(<k>^\circ) ? (k - 45) % 180  <format(sin(radians(k)),'.4f')> ? k % 30
logarithm
  draw a=r(2,9*s)  b=r(2,9*s)
  where a + b != a * b
  same \ln <a*b>  \ln <a>+\ln <b>  \frac{1}{2}\ln(<(a*b)**2>)  -\ln\frac{1}{<a*b>}  \frac{\log_{7} <a*b>}{\log_7 e}
  change a=a+1
  other \ln <a+b>  \log_{10} <a*b>  \ln <a> \cdot \ln <b>  <format(log(a*b),'.3f')>
angle
  draw k=r(1,360)
  where k != 180
  same <k>^\circ  \frac{<k>\pi}{180}  <k>  <k>\text{ degrees}  <k-1>^\circ 60'
  change k=k+1  k=-k  k=k+360
  other <format(radians(k),'.3f')>  <k>\text{ radians}  \frac{<k>}{180}
polynomial
  draw a=one((1,2,3,-1))  p=r(-3-s,3+s)  q=r(-3-s,3+s)
  let x2=f'{a}x^2{-a*(p+q):+}x{a*p*q:+}'
  where a and p and q and p != q
  same <x2>  <a>(x<+-p>)(x<+-q>)  <a*p*q><+-a*(p+q)>x<+a>x^2  (<a>x<+-a*(p+q)>)x<+a*p*q>
      <a-5>x^2<+-a*(p+q)>x<+a*p*q>+5x^2  f(x) = <x2>  \frac{2(<a>(x<+-p>)(x<+-q>))}{2}
  change p=p+1  a=-a  a=a+1
  other <x2.replace('x','y')>  <a*p*q>  <x2>+10^{-<r(5,400)>}  \frac{1}{<x2>}  <a>(x<+-p>)  <a>(x<+-p>)(x<+-q>)^2
rational function
  draw a=r(1,9*s)  b=r(1,9*s)  p=r(1,5+3*s)  q=r(1,5+3*s)
  where p < q
  same \frac{<a+b>x<+-(a*q+b*p)>}{(x-<p>)(x-<q>)}  \frac{<a>}{x-<p>}+\frac{<b>}{x-<q>}
      -\frac{<a>}{<p>-x}-\frac{<b>}{<q>-x}  \frac{<a+b>x<+-(a*q+b*p)>}{x^2-<p+q>x+<p*q>}
  change a,b=b,a  a=a+1  q=q+1
linear form
  draw a=r(1,9*s)  b=r(1,9*s)
  same \frac{<a>}{2}x+<b>y  <a/2>x+<b>.0y  <b>y+\frac{<2*a>x}{4}
  change a,b=2*b,a  a=a+1  b=b+1
line
  draw a=r(1,4*s)*one((-1,1))  b=r(1,9*s)*one((-1,1))
  where a
  same y = <a>x<+b>  <a>x-y<+b>=0  3y = <3*a>x<+3*b>  <a>x<+b> = y  x = \frac{y<+-b>}{<a>}  <a>x<+b>
  change a=a+1  a=-a  b=b+1
  other y < <a>x<+b>  y \neq <a>x<+b>  y^2 = (<a>x<+b>)^2  xy = <a>x^2<+b>x
circle
  draw a=r(-9,9)  b=r(-3*s,3*s)  c=r(2,5*s+1)
  where a and b and a != b
  same (x<+-a>)^2+(y<+-b>)^2=<c*c>  x^2+y^2<+-2*a>x<+-2*b>y<+a*a+b*b-c*c>=0  (y<+-b>)^2 = <c*c>-(x<+-a>)^2
  change a=a+1  a=-a  a,b=b,a  c=c+1
  other (x<+-a>)^2+(y<+-b>)^2=<c>
integral
  draw a=r(2,9*s)  x=one('xtu')
  same <a>e^<x>+C  <a>e^<x>+c  K+<a>e^<x>
  change a=a+1
  other <a>e^<x>  <a>Ke^<x>  <a>e^<x>+<x>
cases
  draw a=r(2,9*s)  b=r(1,9*s)  c=r(-s,s)
  same \begin{cases} <a>x & x < <c> \\ x+<b> & x \geq <c> \end{cases}
      \begin{cases} x+<b> & x \geq <c> \\ <a>x & x < <c> \end{cases}
      \begin{cases} <a>x & x < <c> \\ x+<b> & \text{otherwise} \end{cases}
  change a=a+1  b=b+1  c=c+1
  other \begin{cases} <a>x & x < <c> \\ x+<b> & x > <c> \end{cases}  <a>x
term
  draw a=r(1,9*s)*one((-1,1))
  let K=r(6,300)  k=r(3,300)  T=r(16,200)
  same x<+a>  <a>+x  x-(<-a>)
  change a=a+1
  other |x<+a>+10^{<K>}|-10^{<K>}  \sqrt{(x<+a>+10^{<K>})^2}-10^{<K>}
      \sqrt{x^2+2 \cdot 10^{<K>}x+(10^{<K>})^2}-10^{<K>}<+a>  x<+a>+\sin(2^{<T>}\pi x)  (x<+a>)\cos(2^{<T>}\pi x)
      x<+a>+1-\tanh(x^2+1000)  x<+a>+0^{|x<+a>|}
distance
  draw a=r(1,9*s)*one((-1,1))
  let K=r(6,300)  k=r(3,300)  T=r(16,200)
  same |x<+a>|  \sqrt{(x<+a>)^2}  |<-a>-x|  \sqrt{x^2+2 \cdot (<a>)x+(<a>)^2}
  change a=a+1
  other x<+a>  \frac{|x<+a>-10^{-<k>}|+|x<+a>+10^{-<k>}|}{2}  |x<+a>+10^{-<k>}|  \sqrt{(x<+a>)^2+10^{-<k>}}
step
  draw a=r(1,9*s)*one((-1,1))
  let K=r(6,300)  k=r(3,300)  T=r(16,200)
  same \lfloor x<+a>\rfloor  \lfloor x\rfloor<+a>  -\lceil -x-(<a>)\rceil
  change a=a+1
  other \lfloor x<+a>+10^{-<k>}\rfloor  \lceil x<+a>\rceil-1  x<+a>
alternating sign
  draw a=r(1,9*s)*one((-1,1))
  let K=r(6,300)  k=r(3,300)  T=r(16,200)
  same (-1)^n (x<+a>)  -(-1)^{n+1}(x<+a>)  (-1)^{n+2}(x<+a>)  \cos(n\pi)(x<+a>)
  change a=a+1
  other (-1)^n |x<+a>|  (-1)^n (x<+a>)+\sin(\pi x)  (-1)^{n+1}(x<+a>)  \frac{(10^{<K>}-n)(-1)^n (x<+a>)}{|n-10^{<K>}|}
growth
  draw a=r(1,9*s)*one((-1,1))
  let K=r(6,300)  k=r(3,300)  T=r(16,200)
  same e^x<+a>  <a>+e^x  \frac{1}{e^{-x}}<+a>
  change a=a+1
  other \min(e^x<+a>, 10^{<K>})  e^{2x}<+a>  e^x<+a>+|x-10^7|+x-10^7
""")
"""Name → kind of answer."""
