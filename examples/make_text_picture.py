#!/usr/bin/env python3
"""Makes examples/text.png: a notice photographed on a wooden table, with several sizes of text, a tilted receipt,
perspective, uneven light and a little noise.   Usage: make_text_picture.py OUT.png

Needs numpy and pillow, and the DejaVu fonts (Debian: fonts-dejavu-core)."""
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

FONTS = "/usr/share/fonts/truetype/dejavu/"
WIDTH, HEIGHT = 960, 720


def font(name, size):
    return ImageFont.truetype(f"{FONTS}{name}.ttf", size)


def table(random):
    """Boards of wood: a few brown tones, grain along x."""
    grain = random.normal(0, 1, (HEIGHT, 24)).repeat(WIDTH // 24, axis=1)
    grain = np.asarray(Image.fromarray(grain.astype(np.float32)).filter(ImageFilter.BoxBlur(0)))
    boards = np.repeat(random.uniform(-14, 14, 6), HEIGHT // 6)[:, None]
    tone = 104 + boards + 5 * grain[:, :WIDTH]
    tone[::HEIGHT // 6] -= 45
    picture = np.stack([tone * 1.12, tone * 0.82, tone * 0.58], axis=2)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(1.6))


def notice():
    paper = Image.new("RGB", (620, 560), (246, 243, 232))
    draw = ImageDraw.Draw(paper)
    draw.rectangle((0, 0, 619, 92), fill=(28, 78, 110))
    draw.text((310, 46), "HARBOUR LIBRARY", font=font("DejaVuSans-Bold", 50), fill=(250, 250, 245), anchor="mm")
    serif, ink = "DejaVuSerif", (38, 36, 34)
    draw.text((310, 136), "Opening hours in winter", font=font("DejaVuSerif-Bold", 34), fill=ink, anchor="mm")
    hours = [("Monday to Thursday", "9:00 - 19:30"), ("Friday", "9:00 - 17:00"), ("Saturday", "10:00 - 14:00"),
             ("Sunday", "closed")]
    for i, (day, time) in enumerate(hours):
        y = 200 + 50 * i
        draw.text((48, y), day, font=font(serif, 27), fill=ink, anchor="lm")
        draw.text((572, y), time, font=font(serif, 27), fill=(150, 36, 40), anchor="rm")
    draw.line((48, 392, 572, 392), fill=(150, 146, 136), width=2)
    small = font("DejaVuSans", 20)
    draw.text((48, 426), "Please return books through the slot beside the door", font=small, fill=ink, anchor="lm")
    draw.text((48, 460), "when the building is closed. Thank you!", font=small, fill=ink, anchor="lm")
    draw.text((310, 520), "phone 0471 - 220 86", font=font("DejaVuSansMono-Bold", 26), fill=(28, 78, 110), anchor="mm")
    return paper


def receipt():
    paper = Image.new("RGB", (250, 330), (252, 252, 250))
    draw = ImageDraw.Draw(paper)
    mono, ink = "DejaVuSansMono", (60, 60, 66)
    draw.text((125, 34), "CAFE NORD", font=font("DejaVuSansMono-Bold", 28), fill=ink, anchor="mm")
    for i, (what, price) in enumerate([("Coffee", "2.80"), ("Rye bread", "3.20"), ("Apple cake", "4.10")]):
        draw.text((18, 92 + 42 * i), what, font=font(mono, 20), fill=ink, anchor="lm")
        draw.text((232, 92 + 42 * i), price, font=font(mono, 20), fill=ink, anchor="rm")
    draw.line((18, 212, 232, 212), fill=ink, width=2)
    draw.text((18, 246), "TOTAL", font=font("DejaVuSansMono-Bold", 24), fill=ink, anchor="lm")
    draw.text((232, 246), "10.10", font=font("DejaVuSansMono-Bold", 24), fill=ink, anchor="rm")
    draw.text((125, 298), "2024-11-08  16:42", font=font(mono, 16), fill=ink, anchor="mm")
    return paper


def put(picture, paper, corners):
    """Lays `paper` so that its corners (clockwise from the top left) lie at `corners`, with a shadow."""
    w, h = paper.size
    rows = []
    for (x, y), (u, v) in zip(corners, [(0, 0), (w, 0), (w, h), (0, h)]):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y, u], [0, 0, 0, x, y, 1, -v * x, -v * y, v]]
    system = np.array(rows, float)
    homography = np.linalg.solve(system[:, :8], system[:, 8])
    size = picture.size
    alpha = Image.new("L", paper.size, 255).transform(size, Image.Transform.PERSPECTIVE, homography,
                                                      Image.Resampling.BICUBIC)
    laid = paper.transform(size, Image.Transform.PERSPECTIVE, homography, Image.Resampling.BICUBIC)
    shadow = Image.new("L", size, 0)
    shadow.paste(alpha, (9, 11))
    shadow = shadow.filter(ImageFilter.GaussianBlur(9)).point(lambda a: a * 0.55)
    picture.paste((20, 12, 6), (0, 0), shadow)
    picture.paste(laid, (0, 0), alpha)


def main():
    random = np.random.default_rng(7)
    picture = table(random)
    put(picture, notice(), [(58, 70), (628, 34), (668, 612), (34, 590)])
    put(picture, receipt(), [(716, 270), (930, 316), (852, 620), (640, 566)])
    ImageDraw.Draw(picture).text((786, 128), "Tessera", font=font("DejaVuSerif-BoldItalic", 58), fill=(238, 214, 170),
                                 anchor="mm")
    ImageDraw.Draw(picture).text((786, 184), "carved in wood", font=font("DejaVuSerif-Italic", 26),
                                 fill=(232, 206, 160), anchor="mm")
    pixels = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.6)), dtype=np.float64)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    light = 1.08 - 0.42 * np.hypot((x - 330) / WIDTH, (y - 240) / HEIGHT)
    pixels = pixels * light[..., None] + random.normal(0, 0.62, (HEIGHT, WIDTH, 1))
    # Fewer levels make the file small without being visible.
    pixels = (pixels / 6).round() * 6
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
