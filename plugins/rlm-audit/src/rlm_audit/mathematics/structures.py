"""Answers of several values: sets, tuples, intervals, matrices, systems; quantities with units; choices and words."""

from __future__ import annotations

from rlm_audit.kinds import read_kinds

SEVERAL_VALUES_AND_WORDS = read_kinds(r"""
set
  draw a=r(-9*s,9*s)  b=a+r(1,9*s)  c=b+r(1,9*s)
  where a < b < c
  same \{<a>, <b>, <c>\}  \{<c>, <a>, <b>\}  \{<b>, <a>, <c>, <b>\}  <b>, <c>, <a>
      x = <a> \text{ or } x = <c> \text{ or } x = <b>  \{<c>\} \cup \{<a>, <b>\}  x \in \{<c>, <b>, <a>\}
  change a=a-1  c=c+1  c=-c
  other \{<a>, <b>\}  \{<a>, <b>, <c>, <c+1>\}  \{<a>, <b>, <b>\}  (<a>, <b>, <c>)  [<a>, <c>]  <c>  x=<a>, <b>, y=<c>
plus or minus
  draw a=r(-9*s,9*s)  b=r(1,9*s)
  where a and a != b
  same <a> \pm <b>  <a+b>, <a-b>  \{<a-b>, <a+b>\}  x = <a-b> \text{ or } x = <a+b>  x = <a> \pm <b>
      <a> \pm \sqrt{<b*b>}
  change a=a+1  b=b+1
  other <a+b>  <a-b>  <a+b>, <b-a>  <a-b>, <a>, <a+b>
no solution
  draw t=one(('\\emptyset','\\varnothing','\\{\\}'))
  same <t>  \emptyset  \varnothing  \{\}
  other 0  \{0\}  \{\emptyset\}  \mathbb{R}  ()
residue class
  draw a=r(1,9*s)  m=r(3,9*s)
  where a < m
  same x \equiv <a> \pmod{<m>}  x=<m>k+<a>  x = <a>+<m>n, n \in \mathbb{Z}  <a+3*m> \pmod{<m>}
      <a> \equiv x \pmod{<m>}
  change a=a+1  m=m+1
  other x=<2*m>k+<a>  y=<m>k+<a>  x=<m>k+<a>, k \in \mathbb{N}  x=<m>k^2+<a>  x=<a>
      x \equiv <a+1> \equiv <a> \pmod{<m>}  x \equiv <a>, <a+1> \pmod{<m>}
periodic solutions
  draw a=r(1,3*s)  b=r(3*s+1,6*s+1)
  same \frac{<a>\pi}{<b>}+k\pi, k\in\mathbf{Z}  k\pi+\frac{<a>\pi}{<b>} (k \in \mathbb{Z})
      \{x \mid x=k\pi+\frac{<a>\pi}{<b>}, k\in\mathbb{Z}\}  \frac{<a>\pi}{<b>}+n\pi, n\in\mathbb{Z}
  change a=a+1
  other \frac{<a>\pi}{<b>}+2k\pi (k\in\mathbb{Z})  \frac{<a>\pi}{<b>}+k\pi (k\in\mathbb{N})
      \{x \mid x\neq k\pi+\frac{<a>\pi}{<b>}, k\in\mathbb{Z}\}
tuple
  draw a=r(-9*s,9*s)  b=a+r(1,9*s)  c=b+r(1,9*s)
  where a != b
  same (<a>, <b>, <c>)  (x, y, z) = (<a>, <b>, <c>)  x = <a>, y = <b>, z = <c>
      (\frac{<2*a>}{2}, \frac{<3*b>}{3}, <c>)  \langle <a>, <b>, <c> \rangle  \mathbf{(<a>, <b>, <c>)}
      \begin{pmatrix}<a> \\ <b> \\ <c>\end{pmatrix}  <a>\mathbf{i}<+b>\mathbf{j}<+c>\mathbf{k}
      <a>\hat{i}<+b>\hat{j}<+c>\hat{k}
  change a,b=b,a  a=a+1  c=-c  a,c=c,a
  other <a>, <b>, <c>  \{<a>, <b>, <c>\}  (<a>, <b>, <c>]  [<a>, <b>, <c>]  (<a>, <b>)  (<a>, <b>, <c>, <a>)
      y = <a>, x = <b>, z = <c>  x = <a> \text{ or } y = <b> \text{ or } z = <c>  <a>  <a+b+c>
system
  draw a=r(-9*s,9*s)  b=r(10*s,19*s)
  same \begin{cases} x=<a> \\ y=<b> \end{cases}  (<a>, <b>)  y=<b>, x=<a>  <a>, <b>
      \left\{\begin{array}{l}x=<a>,\\y=<b>.\end{array}\right.  (<a>,<b>)^{\top}
  change a,b=b,a  a=a+1
  other \begin{cases} x=<a> \end{cases}  \begin{cases} x=<a> \\ y=<b> \\ z=1 \end{cases}
solutions
  draw a=r(-9*s,9*s)  b=r(10*s,19*s)  c=r(-9*s,9*s)  d=r(20*s,29*s)
  where a != c
  same (<a>,<b>), (<c>,<d>)  (x,y) \in \{(<c>,<d>), (<a>,<b>)\}  x=<a>, y=<b> \text{ or } x=<c>, y=<d>
  change a,b,c,d=b,a,d,c  b,d=d,b  a=a+1
  other (<a>,<b>)  x=<a>, <c>, y=<b>, <d>
points with names
  draw a=r(-9,9)  b=r(-9,9)  c=r(10,19)  d=r(-9*s,9*s)
  same A(<a>, <b>), B(<c>, <d>)  B(<c>, <d>), A(<a>, <b>)  A = (<a>, <b>), B = (<c>, <d>)
      A(<a>, <b>)\text{ and }B(<c>, <d>)
  change a,b,c,d=c,d,a,b  d=d+1
  other A(<a>, <b>), C(<c>, <d>)  A(<a>, <b>)
matrix
  draw a=r(-9,9)  b=r(-9,9)  c=r(-9,9)  d=r(-9,9)
  where b != c and (a, b) != (c, d)
  same \begin{pmatrix} <a> & <b> \\ <c> & <d> \end{pmatrix}  \begin{bmatrix} <a> & <b> \\ <c> & <d> \end{bmatrix}
      \begin{pmatrix} \frac{<2*a>}{2} & <b> \\ <c> & \frac{<3*d>}{3} \end{pmatrix}
      \begin{pmatrix} <a> & <b> \\ <c> & <d> \\ \end{pmatrix}
  change b,c=c,b  a=a+1  a,b,c,d=c,d,a,b  a,b,c,d=-a,-b,-c,-d
  other \begin{vmatrix} <a> & <b> \\ <c> & <d> \end{vmatrix}  <a>, <b>, <c>, <d>
      \begin{pmatrix} <a> & <b> \end{pmatrix}  \begin{pmatrix} <a> \\ <c> \end{pmatrix}
ratio
  draw a=one((29,101))  b=one((2,3,7,11,103))  c=one((2,3,7,11,103))
  same <a>:<b>:<c>  <200*a>:<200*b>:<200*c>  <a> : <b> : <c>
  change c=c+1  a,b=b,a
  other <2*a>:<b>:<c>  <a>:<b>:<c>:1  <a>:<b>  0:0:0  <a>,<b>,<c>
interval
  draw a=r(-9*s,9*s)  b=r(-9*s,9*s)  l=one('([')  h=one(')]')
  let p='<'if(l=='(')else'\\leq'  q='<'if(h==')')else'\\leq'
  where a < b
  same <l><a>, <b><h>  <a> <p> x <q> <b>  x \in <l><a>, <b><h>  \{x \mid <a> <p> x <q> <b>\}
      \{x \in \mathbb{R} : <a> <p> x <q> <b>\}  \{t : <a> <p> t <q> <b>\}
      <l><a>, \frac{<a+b>}{2}) \cup [\frac{<a+b>}{2}, <b><h>  <l><a>, <b><h> \cap \mathbb{R}
      |x<+-(a+b)/2>| <p> <(b-a)/2> ? p == q
  change l='(['[l=='(']  h=')]'[h==')']  a=a-1  b=b+1  a,b,l,h=-b,-a,'(['[h==']'],')]'[l=='[']
  other (-\infty, <b><h>  <l><a>, \infty)  <l><b>, <a><h>  \{<a>, <b>\}
      <l><a>, \frac{<a+b>}{2}) \cup (\frac{<a+b>}{2}, <b><h>  \{y \mid <a> <p> x <q> <b>\}
      \{x \mid <a> <p> x <q> <b>, x\in\mathbb{Z}\} ? b - a > 1
half line
  draw a=r(-9*s,9*s)  h=one(')]')
  let q='<'if(h==')')else'\\leq'
  same (-\infty, <a><h>  x <q> <a>  \{x \mid x <q> <a>\}  (-\infty, <a-1>] \cup (<a-1>, <a><h>
  change a=a+1  h=')]'[h==')']
  other [-\infty, <a><h>  (<a>, \infty)  x = <a>  \mathbb{R}
domain
  draw a=r(-9*s,9*s)  b=one((-a,a+r(1,9*s)))
  where a < b
  same (-\infty, <a>) \cup (<a>, <b>) \cup (<b>, \infty)  \mathbb{R} \setminus \{<a>, <b>\}  x \neq <a>, x \neq <b>
      \{x \in \mathbb{R} \mid x \neq <b>, <a>\}  (<b>, \infty) \cup (-\infty, <a>) \cup (<a>, <b>)
      x \neq \pm <b> ? a == -b
  change a=a-1  b=b+1  a,b=-b,-a
  other (-\infty, <a>] \cup (<a>, <b>) \cup (<b>, \infty)  \mathbb{R} \setminus \{<a>\}  \mathbb{R}  \{<a>, <b>\}
      x = <a>, x = <b>
length
  draw n=r(1,10**s)
  same <n>\text{ cm}  <n>\,\mathrm{cm}  <n> cm  <n>\text{ centimeters}  <n>  <10*n>\text{ mm}
      <Fraction(n,100)>\text{ m}
  change n=n+1  n=-n
  other <n>\text{ m}  <n>\text{ cm}^2  <n>\text{ kg}  <n>\%  <10*n>\text{ km}
symbol of a unit
  draw n=r(1,10**s)  u=one(('mW','mHz','mPa','meV'))
  same <n>\text{ <u>}  <n>\,\mathrm{<u>}  <n>
  change n=n+1
  other <n>\text{ <'M'+u[1:]>}  <n>\text{ <'k'+u[1:]>}  <n>\text{ <u.upper()>} ? u == 'mPa'
rate
  draw k=r(1,10**min(s,4))
  same <18*k>\text{ km/h}  <18*k>\text{ km per hour}  <5*k>\text{ m/s}  <18*k>\text{ km}/\text{h}
      <18*k>\text{ km h}^{-1}
  change k=k+1  k=10*k
  other <18*k>\text{ m/s}  <18*k>\text{ mph}  <18*k>\text{ km}  <18*k>\text{ h/km}  <18*k>\text{ km h}^{-2}
duration
  draw h=r(1,3*s)  m=r(1,59)
  where m < 60
  same <h>\text{ hours }<m>\text{ minutes}  <60*h+m>\text{ minutes}  \text{<h> hours and <m> minutes}
      <h+Fraction(m,60)>\text{ hours}
  change m=m+1  h=h+1
  other <h>.<m>\text{ hours} ? m > 9  <h>\text{ hours}  <60*h+m>\text{ seconds}
lengths
  draw a=r(1,9*s)  b=r(9*s+1,10**(s+1))
  same <a>\text{ cm}, <b>\text{ cm}  <b>\text{ cm}, <a>\text{ cm}  <a>, <b>
  change b=b+1
  other <a>\text{ m}, <b>\text{ m}  <a>\text{ cm}, <b>\text{ m}  <b>\text{ cm}  <a><b>\text{ cm}
choice
  draw v=one('ABCDE')  n=r(2,10**s)
  let w=one('ABCDE'.replace(v,''))
  same <v>  (<v>)  \text{<v>}  \textbf{(<v>)}  \mathrm{<v>}
  change v=one('ABCDE')
  other <v>, <w>  ABCDE  <v> \text{ or } <w>  <n>
option
  draw v=one('ABCDE')  n=r(2,10**s)
  let w=one('ABCDE'.replace(v,''))
  same \textbf{(<v>)}\ <n>  <v>  <n>  \text{(<v>) <n>}
  other <w>  <n+1>  \textbf{(<v>)}\ <n+1>  \textbf{(<w>)}\ <n>
word
  draw v=one(('yes','no','even','odd','Monday','Thursday','parabola','east','listen','top'))
  same \text{<v>}  \text{<v.capitalize()>}  <v>  \text{<v>}.
  change v=one(('yes','no','odd','Friday','ellipse','west','silent','pot'))
  other \text{not <v>}  1  \text{<v>s}  <v[::-1]>
product of letters
  draw a=one('bcdf')  b=one('kmnp')  c=one('qrst')
  same <a><b><c>  <c><a><b>  <b> \cdot <a> \cdot <c>
  other <a><b>z  <a><b>  <a>+<b>+<c>  <a><b><c>^2
restated problem
  draw a=r(2,9)  n=r(5,4*s+5)
  let v=a*n*(n+1)//2
  same <v>
  other \sum_{k=1}^{<n>} <a>k  \int_0^{<v>} 1\,dx  \gcd(<2*v>, <3*v>)  \max(<v>, <v-1>)
      \begin{vmatrix} <v> & 0 \\ 0 & 1 \end{vmatrix}  <a>\binom{<n+1>}{2}
""")
"""Name → kind of answer."""
